//! The folders and root files of `timer-core` and `purgatory` are layers: no file imports from a
//! layer above its own, and no files import each other in a circle. `docs/ARCHITECTURE.md` has the
//! order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::{
    imports::{imports, in_circles},
    tree::{drawing, modules, none, text},
};

/// Layers, the lowest first; the names in one layer are beside each other.
pub(crate) struct Order(Vec<Vec<String>>);

impl Order {
    /// Reads the page's line `of: a < b, c < d`; lines that follow it indented belong to it.
    pub(crate) fn read(of: &str) -> Order {
        let page = text("docs/ARCHITECTURE.md");
        let lines = drawing(&page, "## Layers").replace("\n  ", " ");
        let line = lines
            .lines()
            .find_map(|line| line.strip_prefix(of)?.strip_prefix(": "))
            .unwrap_or_else(|| panic!("docs/ARCHITECTURE.md has no layers of {of}"));
        Order::parse(line)
    }

    /// Reads `a < b, c < d`.
    pub(crate) fn parse(line: &str) -> Order {
        let mut layers = Vec::new();
        for layer in line.split('<') {
            let names = layer.split(',').map(|name| name.trim().to_owned());
            layers.push(names.collect());
        }
        Order(layers)
    }

    /// The place of a name in the order.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.0
            .iter()
            .position(|layer| layer.iter().any(|other| other == name))
    }

    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.0.iter().flatten().map(String::as_str).collect()
    }
}

/// The one circle of two files. A trait names the type that is generic over it: an engine gets its
/// shard, and a shard has its engine's records.
const ONE_DEFINITION: [&str; 2] = ["table/mod", "table/shard"];

/// The layer of a file: its folder, or the file itself at the crate's root.
fn layer(file: &str) -> &str {
    file.split('/').next().unwrap()
}

#[test]
fn no_file_imports_upwards_or_in_a_circle() {
    let mut wrong = Vec::new();
    for of in ["timer-core", "purgatory"] {
        let order = Order::read(of);
        let mut imports = imports(&modules(of));
        if let Some(targets) = imports.get_mut(ONE_DEFINITION[1]) {
            assert!(
                targets.remove(ONE_DEFINITION[0]),
                "it is no circle any more"
            );
        }
        for (file, targets) in &imports {
            let here = order.place(layer(file));
            if here.is_none() {
                wrong.push(format!("{of}: {file} is in no layer"));
            }
            for target in targets {
                if target == "lib" {
                    wrong.push(format!("{of}: {file} imports from the crate's root"));
                } else if order.place(layer(target)) > here {
                    wrong.push(format!("{of}: {file} imports {target}, which is above"));
                }
            }
        }
        // A name in the order without a file would be a layer that is gone.
        let there: BTreeSet<&str> = imports.keys().map(|file| layer(file)).collect();
        for gone in order.names().difference(&there) {
            wrong.push(format!("{of}: no file is in the layer {gone}"));
        }
        for file in in_circles(&imports) {
            wrong.push(format!("{of}: {file} is in a circle of imports"));
        }
    }
    none(wrong);
}

/// The imports of `low/a`, a file of this code.
#[track_caller]
fn imported(code: &str) -> Vec<String> {
    let files = [
        ("lib", ""),
        ("low/mod", ""),
        ("low/a", code),
        ("low/c", ""),
        ("high/b", ""),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    imports(&files)["low/a"].iter().cloned().collect()
}

#[test]
fn an_import_is_found_however_it_is_written() {
    for code in [
        "use crate::high::b::B;",
        "use crate::{low::a::X, high::{b::{B, D as E}}};",
        "use super::super::high::b::*;",
        "fn f() -> crate::high::b::B<'static> { g(super::super::high::b::h::<u8>(1)) }",
        "mod inner { use super::super::super::high::b::B; }",
        "const C: &str = r#\"\"//\"#; use crate::high::b::B;",
        "#[cfg(test)] mod tests { fn f() {} } use crate::high::b::B;",
        "#[cfg(test)] use std::{fmt, io}; use crate::high::b::B;",
    ] {
        assert_eq!(imported(code), ["high/b"], "{code}");
    }
    for code in [
        "/// [`B`](crate::high::b::B)\nconst C: &str = \"crate::high::b::B\";",
        "#[cfg(test)]\nmod tests { use crate::high::b::B; fn f() { {} } }",
        "#[cfg(test)]\n#[allow(dead_code)]\nuse crate::{high::b::B};",
        "pub(in crate::high::b) fn f() { $crate::high::b::f() }",
    ] {
        assert_eq!(imported(code), [""; 0], "{code}");
    }
    assert_eq!(
        imported("use super::c::C; use crate::Top;"),
        ["lib", "low/c"]
    );
}

#[test]
fn a_circle_is_told_and_what_only_leads_there_is_not() {
    let files = [
        ("a", "use crate::b::B;"),
        ("b", "use super::c;"),
        ("c", "use crate::{a, e};"),
    ];
    let beside = [("d", "use crate::a;"), ("e", ""), ("lib", "use a::A;")];
    let mut all = Vec::new();
    for (name, text) in files.into_iter().chain(beside) {
        all.push((name.to_owned(), text.to_owned()));
    }
    let told: Vec<_> = in_circles(&imports(&all)).into_iter().collect();
    assert_eq!(told, ["a", "b", "c"]);
}
