//! Who imports whom in a crate whose folders are layers. Read from the code that ships: comments,
//! texts and what is under `#[cfg(test)]` do not count, and `lib.rs` (of a program `main.rs`) may
//! import what it likes.
//!
//! For the tests of any crate beside this one: `#[path =
//! "../../../timer-core/tests/house/layers/imports.rs"]`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Fails with everything that is wrong in the crate `of`, whose sources are in `src`, by the line
/// of docs/ARCHITECTURE.md that orders its folders.
#[track_caller]
pub(crate) fn check(of: &str, src: &Path) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let order = order(of, &page).unwrap_or_else(|| panic!("docs/ARCHITECTURE.md orders no {of}"));
    let wrong = wrong(&order, &sources(src));
    assert!(wrong.is_empty(), "{of}: {} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Fails with every circle of files in a program whose sources are in `src`.
#[track_caller]
#[allow(dead_code, reason = "for the benches")]
pub(crate) fn check_circles(of: &str, src: &Path) {
    let circles: Vec<_> = wrong(&[], &sources(src))
        .into_iter()
        .filter(|wrong| wrong.starts_with("a circle"))
        .collect();
    assert!(circles.is_empty(), "{of}: {} circles:\n{}", circles.len(), circles.join("\n"));
}

/// The folders of a crate, the lowest first: of a page's line `of: a < b < c`, in a fenced block.
pub(crate) fn order(of: &str, page: &str) -> Option<Vec<String>> {
    let fenced = page.split("```").skip(1).step_by(2);
    let line =
        fenced.flat_map(str::lines).find_map(|line| line.strip_prefix(of)?.strip_prefix(':'))?;
    Some(line.split('<').map(|layer| layer.trim().to_owned()).collect())
}

/// Every source file below `src`: its path without the ending, and its text.
fn sources(src: &Path) -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(src, &mut paths);
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(src).unwrap().with_extension("");
        (name.to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

/// What is wrong with the imports of `files` (path without the ending, text), whose folders are
/// `order`.
pub(crate) fn wrong(order: &[String], files: &[(String, String)]) -> Vec<String> {
    let mut read: Vec<_> = files.iter().map(|(name, text)| Code::of(name, text)).collect();
    let of_tests: Vec<_> = read.iter().flat_map(|file| file.test_modules.clone()).collect();
    read.retain(|file| !of_tests.iter().any(|module| file.module.starts_with(module)));
    let modules: BTreeMap<_, _> = read.iter().map(|file| (&file.module[..], &*file.name)).collect();

    let mut wrong = Vec::new();
    let layer = |name: &str| layer(order, name);
    for (at, folder) in order.iter().enumerate() {
        if !read.iter().any(|file| layer(&file.name) == Some(at)) {
            wrong.push(format!("no file is in {folder}, which the order names"));
        }
    }
    let mut imports: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for file in read.iter().filter(|file| !is_root(&file.name)) {
        let name = &*file.name;
        let here = layer(name);
        if here.is_none() {
            wrong.push(format!("{name}.rs is in no folder of the order"));
        }
        for (line, path) in &file.paths {
            let target = modules[longest_known(path, &modules)];
            if is_root(target) {
                let path = path.join("::");
                wrong.push(format!("{name}.rs:{line} imports crate::{path}, not whence it comes"));
            } else if target != name {
                imports.entry(name).or_default().entry(target).or_insert(*line);
                if let (Some(here), Some(there)) = (here, layer(target))
                    && there > here
                {
                    let up = format!("{} is below {}", order[here], order[there]);
                    wrong.push(format!("{name}.rs:{line} imports {target}.rs: {up}"));
                }
            }
        }
    }
    wrong.extend(circles(&imports));
    wrong
}

/// The file that a crate or a program begins with.
fn is_root(name: &str) -> bool {
    ["lib", "main"].contains(&name)
}

/// The folder that a file is in; the inmost, where one that is named lies in another.
fn layer(order: &[String], name: &str) -> Option<usize> {
    let is_in = |folder: &str| {
        name.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found = (0..order.len()).filter(|&at| is_in(&order[at]));
    found.max_by_key(|&at| order[at].len())
}

fn longest_known<'a>(path: &'a [String], modules: &BTreeMap<&[String], &str>) -> &'a [String] {
    let prefixes = (0..=path.len()).rev().map(|end| &path[..end]);
    prefixes
        .into_iter()
        .find(|prefix| modules.contains_key(prefix))
        .expect("the crate has a lib.rs")
}

/// Each circle of files that a walk along the imports comes upon, told file by file.
fn circles(imports: &BTreeMap<&str, BTreeMap<&str, usize>>) -> Vec<String> {
    fn walk<'a>(
        file: &'a str,
        imports: &BTreeMap<&'a str, BTreeMap<&'a str, usize>>,
        way: &mut Vec<(&'a str, usize)>,
        done: &mut BTreeSet<&'a str>,
        found: &mut Vec<String>,
    ) {
        for (&target, &line) in imports.get(file).into_iter().flatten() {
            way.push((file, line));
            if let Some(start) = way.iter().position(|&(passed, _)| passed == target) {
                let steps = way[start..].iter().map(|(file, line)| format!("{file}.rs:{line}"));
                let told = steps.collect::<Vec<_>>().join(" imports ");
                found.push(format!("a circle: {told} imports {target}.rs"));
            } else if !done.contains(target) {
                walk(target, imports, way, done, found);
            }
            way.pop();
        }
        done.insert(file);
    }
    let (mut done, mut found) = (BTreeSet::new(), Vec::new());
    for file in imports.keys() {
        if !done.contains(file) {
            walk(file, imports, &mut Vec::new(), &mut done, &mut found);
        }
    }
    found
}

/// What counts of a file.
#[derive(Default)]
struct Code {
    name: String,
    module: Vec<String>,
    /// Modules, in files of their own, that are for tests only.
    test_modules: Vec<Vec<String>>,
    /// What the code names in this crate, from its root; and in which line.
    paths: Vec<(usize, Vec<String>)>,
}

impl Code {
    fn of(name: &str, text: &str) -> Code {
        let path = name.strip_suffix("/mod").unwrap_or(name);
        let path = if is_root(path) { "" } else { path };
        let module: Vec<_> =
            path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let mut code = Code { name: name.to_owned(), ..Code::default() };
        code.read(&tokens(text.parse().unwrap()), &module);
        Code { module, ..code }
    }

    /// Notes the paths in `tokens`, which stand in the module `inside`.
    fn read(&mut self, tokens: &[Token], inside: &[String]) {
        let texts: Vec<&str> = tokens.iter().map(|token| &*token.text).collect();
        let mut at = 0;
        while at < tokens.len() {
            let start = at;
            let mut leaves = Vec::new();
            match texts[at..] {
                ["#", "[", ..] if tokens[at + 1].is_cfg_test() => {
                    at = end_of_item(&texts, at);
                    if let [.., "mod", name, ";"] = texts[start..at] {
                        self.test_modules.push([inside, &[name.to_owned()]].concat());
                    }
                }
                ["mod", name, "{", ..] => {
                    self.read(&tokens[at + 2].inside, &[inside, &[name.to_owned()]].concat());
                    at += 3;
                }
                ["use", ..] => at = leaves_of(tokens, at + 1, Vec::new(), &mut leaves),
                ["pub", "(", ..] | ["::" | ".", ..] => at += 2,
                [word, "::", ..] if is_word(word) => {
                    at = leaves_of(tokens, at, Vec::new(), &mut leaves)
                }
                _ => {
                    self.read(&tokens[at].inside, inside);
                    at += 1;
                }
            }
            self.paths.extend(leaves.iter().map(|(line, leaf)| (*line, from_root(leaf, inside))));
        }
    }
}

/// A word, `::`, another sign, or a bracket with what is inside; and its line.
struct Token {
    line: usize,
    text: String,
    inside: Vec<Token>,
}

impl Token {
    fn is_cfg_test(&self) -> bool {
        let is = |token: &Token, text: &str| token.text == text;
        matches!(&*self.inside, [cfg, list] if is(cfg, "cfg")
            && matches!(&*list.inside, [test] if is(test, "test")))
    }
}

fn tokens(stream: TokenStream) -> Vec<Token> {
    let mut found: Vec<Token> = Vec::new();
    for tree in stream {
        let line = tree.span().start().line;
        let (text, inside) = match tree {
            TokenTree::Group(group) => {
                let bracket = match group.delimiter() {
                    Delimiter::Brace => "{",
                    Delimiter::Bracket => "[",
                    Delimiter::Parenthesis | Delimiter::None => "(",
                };
                (bracket.to_owned(), tokens(group.stream()))
            }
            TokenTree::Punct(sign) => (sign.to_string(), Vec::new()),
            TokenTree::Ident(word) => {
                (word.to_string().trim_start_matches("r#").to_owned(), Vec::new())
            }
            TokenTree::Literal(_) => ("0".to_owned(), Vec::new()),
        };
        match found.last_mut() {
            Some(last) if last.text == ":" && text == ":" => last.text = "::".to_owned(),
            _ => found.push(Token { line, text, inside }),
        }
    }
    found
}

/// Behind an item and its attributes: its `;` or `}`, or the end of what it is in.
fn end_of_item(texts: &[&str], mut at: usize) -> usize {
    while texts.get(at) == Some(&"#") {
        at += 2;
    }
    let rest = &texts[at..];
    let is_use = rest.iter().take_while(|text| **text != "{").any(|text| *text == "use");
    let is_end = |text: &&str| *text == ";" || *text == "{" && !is_use;
    rest.iter().position(is_end).map_or(texts.len(), |end| at + end + 1)
}

/// The paths of a `use` or of other code that begin at `at`; returns behind them. Braces are taken
/// apart, `as` and `*` taken off.
fn leaves_of<'a>(
    tokens: &'a [Token],
    mut at: usize,
    mut path: Vec<&'a str>,
    found: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let first = tokens.get(at);
    while let Some(Token { text, inside, .. }) = tokens.get(at) {
        match &**text {
            "{" => {
                for piece in inside.split(|token| token.text == ",") {
                    leaves_of(piece, 0, path.clone(), found);
                }
                return at + 1;
            }
            // `a::{self}` is `a`, and `a::*` is of `a`.
            "*" | "self" if !path.is_empty() => {}
            word if is_word(word) => path.push(word),
            _ => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|next| next.text != "::") {
            break;
        }
        at += 1;
    }
    // Behind the last comma there is nothing.
    if let Some(first) = first.filter(|_| !path.is_empty()) {
        found.push((first.line, path));
    }
    at
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A path as from the crate's root. One that begins with a name is taken for a child module's; if
/// there is no such module, it counts as the file's own.
fn from_root(path: &[&str], inside: &[String]) -> Vec<String> {
    let mut from = if path[0] == "crate" { Vec::new() } else { inside.to_vec() };
    for &part in path {
        match part {
            "crate" | "self" => {}
            "super" => drop(from.pop()),
            part => from.push(part.to_owned()),
        }
    }
    from
}
