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
        let (tokens, of_tests) = without_tests(tokens(text));
        let child = |child: String| [&module[..], &[child]].concat();
        let test_modules = of_tests.into_iter().map(child).collect();
        Code { name: name.to_owned(), paths: paths(&tokens, &module), module, test_modules }
    }
}

/// A name, `::` or another sign, and its line.
struct Token {
    line: usize,
    text: String,
}

/// The code of a file without comments, texts and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let is = |at: usize, sign: char| chars.get(at) == Some(&sign);
    let is_name = |at: usize| chars.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let start = at;
        if is(at, '/') && is(at + 1, '/') {
            while at < chars.len() && !is(at, '\n') {
                at += 1;
            }
        } else if is(at, '/') && is(at + 1, '*') {
            let mut depth = 0;
            loop {
                let (opens, closes) =
                    (is(at, '/') && is(at + 1, '*'), is(at, '*') && is(at + 1, '/'));
                depth += i32::from(opens) - i32::from(closes);
                at += if opens || closes { 2 } else { 1 };
                if depth == 0 || at >= chars.len() {
                    break;
                }
            }
        } else if is(at, '"') {
            at = end_of_text(&chars, at, 0);
        } else if is(at, '\'') {
            at += 1;
            if is(at, '\\') || is(at + 1, '\'') {
                at += if is(at, '\\') { 2 } else { 1 };
                while at < chars.len() && !is(at, '\'') {
                    at += 1;
                }
                at += 1;
            } else {
                while is_name(at) {
                    at += 1;
                }
            }
        } else if is_name(at) {
            while is_name(at) {
                at += 1;
            }
            let name: String = chars[start..at].iter().collect();
            let hashes = (0..).take_while(|n| is(at + n, '#')).count();
            if ["r", "br", "cr"].contains(&&*name) && is(at + hashes, '"') {
                at = end_of_text(&chars, at + hashes, hashes + 1);
            } else if name != "r" || hashes != 1 {
                found.push(Token { line, text: name });
            } else {
                at += 1; // a raw name comes without its r#
            }
        } else {
            let double = is(at, ':') && is(at + 1, ':');
            at += if double { 2 } else { 1 };
            if !chars[start].is_whitespace() {
                found.push(Token { line, text: chars[start..at].iter().collect() });
            }
        }
        line += chars[start..at.min(chars.len())].iter().filter(|&&c| c == '\n').count();
    }
    found
}

/// Behind the text whose quote is at `at`: a raw one if `raw` is not zero, with one less `#` at its
/// ends.
fn end_of_text(chars: &[char], at: usize, raw: usize) -> usize {
    let mut at = at + 1;
    while at < chars.len() {
        let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
        match chars[at] {
            '\\' if raw == 0 => at += 1,
            '"' if raw == 0 => return at + 1,
            '"' if hashes + 1 >= raw => return at + raw,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Takes out each item under `#[cfg(test)]`; tells the modules among them that are files of their
/// own.
fn without_tests(tokens: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let texts: Vec<&str> = tokens.iter().map(|token| &*token.text).collect();
    let (mut cut, mut modules, mut at) = (BTreeSet::new(), Vec::new(), 0);
    while at < texts.len() {
        if !texts[at..].starts_with(&MARK) {
            at += 1;
            continue;
        }
        let start = at;
        while texts.get(at) == Some(&"#") {
            at = end_of_group(&texts, at + 1); // other attributes, too
        }
        let item = at;
        at = end_of_item(&texts, item);
        if let [.., "mod", name, ";"] = texts[item..at] {
            modules.push(name.to_owned());
        }
        cut.extend(start..at);
    }
    let kept = tokens.into_iter().enumerate().filter(|(at, _)| !cut.contains(at));
    (kept.map(|(_, token)| token).collect(), modules)
}

fn nesting(text: &str) -> i32 {
    i32::from(["(", "[", "{"].contains(&text)) - i32::from([")", "]", "}"].contains(&text))
}

/// Behind the bracket that closes the one at `at`.
fn end_of_group(texts: &[&str], mut at: usize) -> usize {
    let mut depth = 0;
    while at < texts.len() {
        depth += nesting(texts[at]);
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Behind an item: its `;` or `}`, or before the end of what it is in.
fn end_of_item(texts: &[&str], start: usize) -> usize {
    let (mut at, mut depth, mut is_use) = (start, 0, false);
    while at < texts.len() {
        depth += nesting(texts[at]);
        is_use |= depth == 0 && texts[at] == "use";
        if depth < 0 {
            return at;
        }
        at += 1;
        if depth == 0 && (texts[at - 1] == ";" || texts[at - 1] == "}" && !is_use) {
            break;
        }
    }
    at
}

/// Every path in the code that is one of this crate, from the crate's root.
fn paths(tokens: &[Token], module: &[String]) -> Vec<(usize, Vec<String>)> {
    let texts: Vec<&str> = tokens.iter().map(|token| &*token.text).collect();
    let children: BTreeSet<&str> =
        texts.windows(2).filter(|pair| pair[0] == "mod").map(|pair| pair[1]).collect();
    let (mut found, mut inside, mut depth, mut at) = (Vec::new(), module.to_vec(), 0, 0);
    let mut opened = Vec::new(); // the depths at which modules began that are written out here
    while at < texts.len() {
        let (start, mut leaves) = (at, Vec::new());
        let before = |back: usize| start.checked_sub(back).map_or("", |at| texts[at]);
        if texts[at] == "use" && texts.get(at + 1) != Some(&"<") {
            at = leaves_of(&texts, at + 1, Vec::new(), &mut leaves);
        } else if ["::", "."].contains(&before(1))
            || [before(3), before(2), before(1)] == ["pub", "(", "in"]
        {
            at += 1;
        } else if texts.get(at + 1) == Some(&"::") {
            let mut path = vec![texts[at]];
            at += 1;
            while texts.get(at) == Some(&"::")
                && texts.get(at + 1).is_some_and(|text| is_word(text))
            {
                path.push(texts[at + 1]);
                at += 2;
            }
            leaves.push((start, path));
        } else {
            if let ["mod", name, "{"] = texts[at..texts.len().min(at + 3)] {
                opened.push(depth);
                inside.push(name.to_owned());
            }
            depth += i32::from(texts[at] == "{") - i32::from(texts[at] == "}");
            if texts[at] == "}" && opened.last() == Some(&depth) {
                opened.pop();
                inside.pop();
            }
            at += 1;
        }
        for (at, leaf) in leaves {
            if let Some(path) = from_root(&leaf, &inside, &children) {
                found.push((tokens[at].line, path));
            }
        }
    }
    found
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Takes the braces of a `use` apart, and `as` and `*` off; returns behind it.
fn leaves_of<'a>(
    texts: &[&'a str],
    mut at: usize,
    mut path: Vec<&'a str>,
    found: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let start = at;
    while at < texts.len() {
        match texts[at] {
            "::" => at += 1,
            "{" => {
                at += 1;
                while at < texts.len() && texts[at] != "}" {
                    at = leaves_of(texts, at, path.clone(), found);
                    at += usize::from(texts.get(at) == Some(&","));
                }
                return at + 1;
            }
            "as" => at += 2,
            "," | "}" | ";" => break,
            word => {
                // `a::{self}` is `a`, and `a::*` is of `a`.
                if word != "*" && (word != "self" || path.is_empty()) {
                    path.push(word);
                }
                at += 1;
            }
        }
    }
    found.push((start, path));
    at
}

/// A path as from the crate's root; `None` for one of another crate.
fn from_root(path: &[&str], inside: &[String], children: &BTreeSet<&str>) -> Option<Vec<String>> {
    let (mut from, rest) = match path {
        ["crate", rest @ ..] => (Vec::new(), rest),
        ["self", rest @ ..] => (inside.to_vec(), rest),
        ["super", ..] => (inside.to_vec(), path),
        [first, ..] if children.contains(first) => (inside.to_vec(), path),
        _ => return None,
    };
    for &part in rest {
        if part == "super" {
            from.pop();
        } else {
            from.push(part.to_owned());
        }
    }
    Some(from)
}
