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
    let mut read: Vec<_> = files
        .iter()
        .map(|(name, text)| Code::of(name, text))
        .collect();
    let tests: Vec<_> = read
        .iter()
        .flat_map(|code| code.test_modules.clone())
        .collect();
    read.retain(|code| !tests.iter().any(|test| code.module.starts_with(test)));
    let names: BTreeMap<&[String], &str> = read
        .iter()
        .map(|code| (&*code.module, &*code.name))
        .collect();
    let target = |path: &Module| {
        (0..=path.len())
            .rev()
            .find_map(|end| names.get(&path[..end]))
            .copied()
            .unwrap_or("lib")
    };
    let of_file = |code: &Code| {
        let targets = code.paths.iter().map(|path| target(path).to_owned());
        (
            code.name.clone(),
            targets.filter(|target| *target != code.name).collect(),
        )
    };
    read.iter()
        .filter(|code| !is_root(&code.name))
        .map(of_file)
        .collect()
}

/// The files that import each other in a circle, and those that import them and are imported.
pub(crate) fn in_circles(imports: &Imports) -> BTreeSet<String> {
    let mut left = imports.clone();
    loop {
        let before = left.len();
        let files: BTreeSet<_> = left.keys().cloned().collect();
        left.retain(|_, targets| targets.iter().any(|target| files.contains(target)));
        let targets: BTreeSet<_> = left.values().flatten().cloned().collect();
        left.retain(|file, _| targets.contains(file));
        if left.len() == before {
            return left.into_keys().collect();
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
    /// What the code names in this crate.
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

    /// Notes the paths in `tokens`, which stand in the module `inside`.
    fn read(&mut self, tokens: &[Token], inside: &[String]) {
        let texts: Vec<&str> = tokens.iter().map(|token| &*token.0).collect();
        let mut at = 0;
        while at < tokens.len() {
            let mut found = Vec::new();
            match texts[at..] {
                ["#", "[", ..] if is_cfg_test(&tokens[at + 1].1) => {
                    let start = at;
                    at = end_of_item(&texts, at);
                    if let [.., "mod", name, ";"] = texts[start..at] {
                        self.test_modules
                            .push([inside, &[name.to_owned()]].concat());
                    }
                }
                ["mod", name, "{", ..] => {
                    self.read(&tokens[at + 2].1, &[inside, &[name.to_owned()]].concat());
                    at += 3;
                }
                ["use", ..] => at = leaves(tokens, at + 1, Vec::new(), &mut found),
                ["pub", "(", ..] | ["$", "crate", ..] | ["::" | ".", ..] => at += 2,
                [word, "::", ..] if is_word(word) => {
                    at = leaves(tokens, at, Vec::new(), &mut found);
                }
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
    found.extend((at > start && !path.is_empty()).then_some(path));
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
