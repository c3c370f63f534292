//! The files that the code of a crate imports from each other. Comments, texts and what is under
//! `#[cfg(test)]` do not count, and `lib.rs` (of a program `main.rs`) may import what it likes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path of modules, from the crate's root.
type Module = Vec<String>;

/// The files that each file imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports of files, given as name and text.
pub(crate) fn imports(files: &[(String, String)]) -> Imports {
    // Files of a `#[cfg(test)] mod` do not count.
    let mut read = Vec::new();
    let mut tests = Vec::new();
    for (name, text) in files {
        let code = Code::of(name, text);
        tests.extend(code.test_modules.clone());
        read.push(code);
    }
    read.retain(|code| !tests.iter().any(|test| code.module.starts_with(test)));

    // Each path leads to the file of its longest part that is a module.
    let mut names: BTreeMap<&[String], &str> = BTreeMap::new();
    for code in &read {
        names.insert(&code.module, &code.name);
    }
    let mut imports = Imports::new();
    for code in &read {
        if is_root(&code.name) {
            continue;
        }
        let targets = imports.entry(code.name.clone()).or_default();
        for path in &code.paths {
            let target = file_of(path, &names);
            if target != code.name {
                targets.insert(target.to_owned());
            }
        }
    }
    imports
}

/// The file that a path leads to: the root's for a path that names no module.
fn file_of<'a>(path: &[String], names: &BTreeMap<&[String], &'a str>) -> &'a str {
    for end in (0..=path.len()).rev() {
        if let Some(name) = names.get(&path[..end]) {
            return name;
        }
    }
    "lib"
}

/// The files that import each other in a circle, and those that lie between two circles.
pub(crate) fn in_circles(imports: &Imports) -> BTreeSet<String> {
    let mut remaining = imports.clone();
    loop {
        let before = remaining.len();
        // A file that imports none of the others is in no circle,
        let files: BTreeSet<_> = remaining.keys().cloned().collect();
        remaining.retain(|_, targets| targets.iter().any(|target| files.contains(target)));
        // nor is one that none of the others imports.
        let targets: BTreeSet<_> = remaining.values().flatten().cloned().collect();
        remaining.retain(|file, _| targets.contains(file));
        if remaining.len() == before {
            return remaining.into_keys().collect();
        }
    }
}

/// The file that a crate or a program begins with.
pub(crate) fn is_root(name: &str) -> bool {
    ["lib", "main"].contains(&name)
}

#[derive(Default)]
struct Code {
    name: String,
    module: Module,
    /// Modules, in files of their own, that are for tests only.
    test_modules: Vec<Module>,
    /// The paths into this crate that stand in the code.
    paths: Vec<Module>,
}

/// A word, a sign, or brackets with what is inside.
struct Token(String, Vec<Token>);

impl Code {
    fn of(name: &str, text: &str) -> Code {
        let path = name
            .strip_suffix("/mod")
            .unwrap_or(if is_root(name) { "" } else { name });
        let parts = path.split('/').filter(|part| !part.is_empty());
        let module: Module = parts.map(str::to_owned).collect();
        let mut code = Code {
            name: name.to_owned(),
            ..Code::default()
        };
        code.read(&tokens(text.parse().unwrap()), &module);
        Code { module, ..code }
    }

    /// Adds the paths in `tokens`, which stand in the module `inside`.
    fn read(&mut self, tokens: &[Token], inside: &[String]) {
        let texts: Vec<&str> = tokens.iter().map(|token| &*token.0).collect();
        let mut at = 0;
        while at < tokens.len() {
            let mut found = Vec::new();
            match texts[at..] {
                // An item for tests only is left out.
                ["#", "[", ..] if is_cfg_test(&tokens[at + 1].1) => {
                    let start = at;
                    at = end_of_item(&texts, at);
                    if let [.., "mod", name, ";"] = texts[start..at] {
                        self.test_modules
                            .push([inside, &[name.to_owned()]].concat());
                    }
                }
                // A module inside the file has paths of its own.
                ["mod", name, "{", ..] => {
                    self.read(&tokens[at + 2].1, &[inside, &[name.to_owned()]].concat());
                    at += 3;
                }
                // Paths, and signs before words that begin none.
                ["use", ..] => at = leaves(tokens, at + 1, Vec::new(), &mut found),
                ["pub", "(", ..] | ["$", "crate", ..] | ["::" | ".", ..] => at += 2,
                [word, "::", ..] if is_word(word) => {
                    at = leaves(tokens, at, Vec::new(), &mut found);
                }
                // Brackets, or a token without meaning here.
                _ => {
                    self.read(&tokens[at].1, inside);
                    at += 1;
                }
            }
            self.paths
                .extend(found.iter().map(|path| from_root(path, inside)));
        }
    }
}

fn tokens(stream: TokenStream) -> Vec<Token> {
    let mut found: Vec<Token> = Vec::new();
    for tree in stream {
        // A group keeps its bracket and its inside; a literal may hold anything, and keeps nothing.
        let token = match tree {
            TokenTree::Group(group) => {
                let bracket = match group.delimiter() {
                    Delimiter::Brace => "{",
                    Delimiter::Bracket => "[",
                    Delimiter::Parenthesis | Delimiter::None => "(",
                };
                Token(bracket.to_owned(), tokens(group.stream()))
            }
            TokenTree::Literal(_) => Token("0".to_owned(), Vec::new()),
            word => Token(word.to_string(), Vec::new()),
        };
        match found.last_mut() {
            Some(last) if last.0 == ":" && token.0 == ":" => last.0 = "::".to_owned(),
            _ => found.push(token),
        }
    }
    found
}

fn is_cfg_test(attribute: &[Token]) -> bool {
    let [cfg, list] = attribute else { return false };
    cfg.0 == "cfg" && matches!(&*list.1, [test] if test.0 == "test")
}

/// Behind an item and its attributes: its `;` or `}`, or the end of what it is in.
fn end_of_item(texts: &[&str], mut at: usize) -> usize {
    while texts.get(at) == Some(&"#") {
        at += 2;
    }
    let rest = &texts[at..];
    let is_use = rest
        .iter()
        .take_while(|text| **text != "{")
        .any(|text| *text == "use");
    let is_end = |text: &&str| *text == ";" || *text == "{" && !is_use;
    rest.iter()
        .position(is_end)
        .map_or(texts.len(), |end| at + end + 1)
}

/// The paths that begin at `at`; returns behind them. Braces are taken apart.
fn leaves(tokens: &[Token], mut at: usize, mut path: Module, found: &mut Vec<Module>) -> usize {
    let start = at;
    while let Some(Token(text, inside)) = tokens.get(at) {
        if text == "{" {
            for piece in inside.split(|token| token.0 == ",") {
                leaves(piece, 0, path.clone(), found);
            }
            return at + 1;
        }
        if is_word(text) {
            path.push(text.clone());
        }
        at += 1;
        if tokens.get(at).is_none_or(|next| next.0 != "::") {
            break;
        }
        at += 1;
    }
    // Behind the last comma there is nothing.
    if at > start && !path.is_empty() {
        found.push(path);
    }
    at
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A path as from the crate's root. One that begins with a name is taken for a child module's.
fn from_root(path: &[String], inside: &[String]) -> Module {
    let mut from = if path[0] == "crate" {
        Vec::new()
    } else {
        inside.to_vec()
    };
    for part in path {
        match &**part {
            "crate" | "self" => {}
            "super" => drop(from.pop()),
            _ => from.push(part.clone()),
        }
    }
    from
}
