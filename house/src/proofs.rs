//! The promises, tests and documentation examples of the tree, by name: the names that the
//! [`ledger`](crate::ledger) has.
//!
//! - A **promise** is the bold head of a row of the table in `docs/RELIABILITY.md`.
//! - A **test** is a function under `#[test]`, `#[tokio::test]` or another attribute of that last
//!   name, in any module or macro of its file. An ignored one does not count.
//! - An **example** is a block of code that rustdoc runs. It has its item's name, as
//!   `cargo test --doc -- --list` shows it but for the type parameters; the second example of an
//!   item ends in ` 2`. An included page belongs to the item that includes it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Expr, ExprLit, Ident, ImplItem, Item, ItemImpl, ItemMacro, ItemMod, ItemTrait, Lit,
    LitStr, Macro, Meta, Token, TraitItem, Type, punctuated::Punctuated,
};

use crate::tree::parse;

/// The page of the promises.
pub(crate) const PROMISES: &str = "docs/RELIABILITY.md";

/// The texts of a tree by their paths.
pub(crate) type Files = BTreeMap<String, String>;

/// Paths, each with a name that stands in that file.
pub(crate) type Places = BTreeSet<(String, String)>;

/// All that a tree proves.
pub(crate) struct Proofs {
    pub(crate) promises: Places,
    pub(crate) tests: Places,
    pub(crate) examples: Places,
    /// Each promise with the tests that its row names.
    pub(crate) plain_tests: Vec<(String, String)>,
}

impl Proofs {
    pub(crate) fn of(files: &Files) -> Proofs {
        let mut proofs = Proofs {
            promises: Places::new(),
            tests: Places::new(),
            examples: Places::new(),
            plain_tests: Vec::new(),
        };
        proofs.read_promises(&files[PROMISES]);
        for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
            // Most files have none: a look at their text is quicker.
            if text.contains("test") {
                let mut names = Vec::new();
                let tokens = text.parse().unwrap_or_else(|e| panic!("{path}: {e}"));
                read_tests(tokens, &mut names);
                for name in names {
                    let is_new = proofs.tests.insert((path.clone(), name.clone()));
                    assert!(is_new, "{path}: two tests {name}");
                }
            }
            if path.starts_with("crates/") && path.contains("/src/") {
                let examples = Examples { files, path }.of_file(text);
                let places = examples.into_iter().map(|name| (path.clone(), name));
                proofs.examples.extend(places);
            }
        }
        proofs
    }

    fn read_promises(&mut self, page: &str) {
        let section = page.split("\n## Promises\n").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for row in section.lines().filter(|line| line.starts_with("| **")) {
            let promise = row.split("**").nth(1).unwrap().trim_end_matches('.');
            self.promises
                .insert((PROMISES.to_owned(), promise.to_owned()));
            let tests = row.split('|').nth(2).unwrap();
            for test in tests.split('`').skip(1).step_by(2) {
                self.plain_tests.push((promise.to_owned(), test.to_owned()));
            }
        }
    }
}

/// Adds the names of the tests in a file's tokens.
fn read_tests(tokens: TokenStream, names: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut is_test = false;
    let mut is_ignored = false;
    for (at, token) in tokens.iter().enumerate() {
        let follows_hash = at > 0 && is_hash(&tokens[at - 1]);
        match token {
            // Attributes add up until the function that they stand on.
            TokenTree::Group(group) if follows_hash => {
                let name = attribute_name(group.stream());
                is_test |= name == "test";
                is_ignored |= name == "ignore";
            }
            TokenTree::Group(group) => read_tests(group.stream(), names),
            TokenTree::Ident(word) if word == "fn" => {
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                    && is_test
                    && !is_ignored
                {
                    names.push(name.to_string());
                }
                is_test = false;
                is_ignored = false;
            }
            _ => {}
        }
    }
}

fn is_hash(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(sign) if sign.as_char() == '#')
}

/// The last name of an attribute's path.
fn attribute_name(tokens: TokenStream) -> String {
    let mut name = String::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => name = word.to_string(),
            TokenTree::Punct(sign) if sign.as_char() == ':' => {}
            _ => break,
        }
    }
    name
}

/// How many examples there are of each name.
type Counts = BTreeMap<String, usize>;

/// Reads the examples of one file.
struct Examples<'a> {
    files: &'a Files,
    path: &'a str,
}

impl Examples<'_> {
    fn of_file(&self, text: &str) -> Vec<String> {
        let file = parse(self.path, text);
        let module = module(self.path);
        let mut found = Counts::new();
        let root = if module.is_empty() { "crate" } else { &module };
        self.document(root, &file.attrs, &mut found);
        for item in &file.items {
            self.item(&module, item, &mut found);
        }

        // A name of its own for each.
        let mut names = Vec::new();
        for (name, examples) in found {
            for number in 1..=examples {
                names.push(match number {
                    1 => name.clone(),
                    _ => format!("{name} {number}"),
                });
            }
        }
        names
    }

    fn item(&self, module: &str, item: &Item, found: &mut Counts) {
        let (name, attributes) = match item {
            Item::Const(item) => (&item.ident, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.attrs),
            Item::Fn(item) => (&item.sig.ident, &item.attrs),
            Item::Static(item) => (&item.ident, &item.attrs),
            Item::Struct(item) => (&item.ident, &item.attrs),
            Item::Type(item) => (&item.ident, &item.attrs),
            Item::Impl(block) => return self.methods(module, block, found),
            Item::Macro(call) => return self.programs(module, call, found),
            Item::Mod(inner) => return self.module(module, inner, found),
            Item::Trait(item) => return self.of_trait(module, item, found),
            _ => return,
        };
        self.document(&join(module, name), attributes, found);
    }

    fn module(&self, module: &str, inner: &ItemMod, found: &mut Counts) {
        let name = join(module, &inner.ident);
        self.document(&name, &inner.attrs, found);
        if let Some((_, items)) = &inner.content {
            for item in items {
                self.item(&name, item, found);
            }
        }
    }

    fn of_trait(&self, module: &str, item: &ItemTrait, found: &mut Counts) {
        let name = join(module, &item.ident);
        self.document(&name, &item.attrs, found);
        for method in &item.items {
            if let TraitItem::Fn(method) = method {
                self.document(&join(&name, &method.sig.ident), &method.attrs, found);
            }
        }
    }

    fn methods(&self, module: &str, block: &ItemImpl, found: &mut Counts) {
        let Type::Path(of) = &*block.self_ty else {
            return;
        };
        let name = join(module, &of.path.segments.last().unwrap().ident);
        self.document(&name, &block.attrs, found);
        for method in &block.items {
            if let ImplItem::Fn(method) = method {
                self.document(&join(&name, &method.sig.ident), &method.attrs, found);
            }
        }
    }

    /// Reads `programs! { name, "file"; }`: each name is a module whose only example is the file.
    fn programs(&self, module: &str, call: &ItemMacro, found: &mut Counts) {
        if !call.mac.path.is_ident("programs") {
            return;
        }
        for token in call.mac.tokens.clone() {
            if let TokenTree::Ident(name) = token {
                found.insert(join(module, &name), 1);
            }
        }
    }

    /// Adds an item's examples.
    fn document(&self, name: &str, attributes: &[Attribute], found: &mut Counts) {
        let mut text = String::new();
        for attribute in attributes {
            self.read(&attribute.meta, &mut text);
        }
        *found.entry(name.to_owned()).or_insert(0) += examples_in(&text);
    }

    /// Adds the text of `doc = ...`, also where it depends on a feature.
    fn read(&self, meta: &Meta, text: &mut String) {
        match meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => {
                text.push_str(&self.value(&pair.value));
                text.push('\n');
            }
            Meta::List(list) if list.path.is_ident("cfg_attr") => {
                let metas = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
                // The first is the condition.
                for meta in metas.unwrap().iter().skip(1) {
                    self.read(meta, text);
                }
            }
            _ => {}
        }
    }

    /// The text that an expression stands for: a string, `include_str!`, or `concat!` of such.
    fn value(&self, value: &Expr) -> String {
        match value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => text.value(),
            Expr::Macro(call) if call.mac.path.is_ident("include_str") => self.included(&call.mac),
            Expr::Macro(call) if call.mac.path.is_ident("concat") => {
                let parts = Punctuated::<Expr, Token![,]>::parse_terminated;
                let parts = call.mac.parse_body_with(parts).unwrap();
                parts.iter().map(|part| self.value(part)).collect()
            }
            _ => String::new(),
        }
    }

    /// The text of an included file; of a picture there is none in the tree's texts.
    fn included(&self, call: &Macro) -> String {
        let file: LitStr = call.parse_body().unwrap();
        let mut folders: Vec<&str> = self.path.split('/').collect();
        folders.pop();
        let file = file.value();
        for step in file.split('/') {
            if step == ".." {
                folders.pop();
            } else {
                folders.push(step);
            }
        }
        let included = self.files.get(&folders.join("/"));
        included.cloned().unwrap_or_default()
    }
}

/// The module of a file below `src`, as a path; empty for the crate's root.
fn module(path: &str) -> String {
    let below = path.split_once("/src/").unwrap().1.trim_end_matches(".rs");
    let below = below.strip_suffix("/mod").unwrap_or(below);
    if below == "lib" {
        String::new()
    } else {
        below.replace('/', "::")
    }
}

fn join(module: &str, name: &Ident) -> String {
    if module.is_empty() {
        name.to_string()
    } else {
        format!("{module}::{name}")
    }
}

/// Counts the blocks of a text that rustdoc runs.
fn examples_in(text: &str) -> usize {
    const RUN: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];
    let fences = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("```")
    });
    // Every other fence opens a block.
    let openings = fences.step_by(2);
    openings
        .filter(|words| words.split(',').all(|word| RUN.contains(&word.trim())))
        .count()
}

/// A small tree for the checks of the checks: these files beside a page of one promise.
pub(crate) fn tree(files: &[(&str, &str)]) -> Files {
    let page = "# R\n\n## Promises\n\n| Promise | Test |\n|---|---|\n| **Ends.** Once | `ends` |\n";
    let mut tree = Files::from([(PROMISES.to_owned(), page.to_owned())]);
    for (path, text) in files {
        tree.insert((*path).to_owned(), (*text).to_owned());
    }
    tree
}

#[test]
fn a_test_is_found_however_it_is_written() {
    let code = "
        #[cfg(test)]
        mod tests {
            /// Text.
            #[test] #[should_panic] fn plain() {}
            fn helper() { #[test] fn inner() {} }
        }
        #[should_panic(expected = \"test\")] #[tokio::test(start_paused = true)]
        pub(crate) async fn paused() {}
        proptest! { #[test] fn made(n in 0..9u8) {} }
        #[test] #[ignore = \"a measurement\"] fn ignored() {}
        #[cfg(test)] fn built_for_tests() {}
        #[cfg_attr(miri, test)] fn no_test() {}
        // #[test] fn comment() {}
        const TEXT: &str = \"#[test] fn text() {}\";
    ";
    let found = Proofs::of(&tree(&[("a/b.rs", code)])).tests;
    let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["inner", "made", "paused", "plain"]);
}

#[test]
fn an_example_is_found_on_whatever_it_stands() {
    let root = "
        //! ```
        //! one();
        //! ```
        //! ```text
        //! no code
        //! ```
        //! ```no_run, should_panic
        //! two();
        //! ```
        #[doc = include_str!(\"../../README.md\")]
        struct Readme;
        /// No example.
        fn f() {}
    ";
    let inner = "
        impl<K: Into<u8>> Of<K> for [K] {}
        /// ```
        /// ```
        impl<K> fmt::Debug for out::Of<'_, K> {
            /// ```
            /// ```
            fn method() {}
        }
        /// ```compile_fail
        /// ```
        trait Of { /** ```rust
                       ``` */ fn of(); }
        mod within {
            #![cfg_attr(feature = \"f\", doc = concat!(\"```\\n\", include_str!(\"p.rs\"), \"\\n```\"))]
        }
        programs! { first, \"first.rs\"; second, \"second.rs\"; }
    ";
    let found = Proofs::of(&tree(&[
        ("crates/of/src/lib.rs", root),
        ("crates/of/src/a/mod.rs", inner),
        ("crates/of/src/a/p.rs", "fn main() {}"),
        ("crates/README.md", "# Of\n\n```rust\nthree();\n```\n"),
        ("crates/of/tests/a.rs", "/// ```\n/// ```\nfn f() {}"),
    ]));
    let names: Vec<&str> = found
        .examples
        .iter()
        .map(|(_, name)| name.as_str())
        .collect();
    let inner = [
        "a::Of",
        "a::Of 2",
        "a::Of::method",
        "a::Of::of",
        "a::first",
        "a::second",
        "a::within",
    ];
    let root = ["Readme", "crate", "crate 2"];
    assert_eq!(names, [&inner[..], &root[..]].concat());
}

#[test]
fn a_promise_is_found_with_its_tests() {
    let found = Proofs::of(&tree(&[]));
    let promise = (PROMISES.to_owned(), "Ends".to_owned());
    assert_eq!(found.promises, Places::from([promise]));
    assert_eq!(found.plain_tests, [("Ends".to_owned(), "ends".to_owned())]);
}
