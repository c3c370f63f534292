//! The folders of `timer-core` and `purgatory` are layers: no file imports from a folder above its
//! own, and no files import each other in a circle. `docs/ARCHITECTURE.md` has the order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::{
    imports::{imports, in_circles},
    tree::{modules, text},
};

/// The folders of a crate, the lowest first: of the page's line `of: a < b < c`.
fn order(of: &str) -> Vec<String> {
    let page = text("docs/ARCHITECTURE.md");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(of)?.strip_prefix(": "))
        .unwrap();
    line.split(" < ").map(str::to_owned).collect()
}

/// The place of a file's folder in the order.
fn layer(order: &[String], file: &str) -> Option<usize> {
    order
        .iter()
        .position(|folder| file.split('/').next() == Some(folder))
}

#[test]
fn no_file_imports_upwards_or_in_a_circle() {
    for of in ["timer-core", "purgatory"] {
        let (order, mut wrong) = (order(of), Vec::new());
        let imports = imports(&modules(of));
        for (file, targets) in &imports {
            let here = layer(&order, file);
            let above = |target: &&String| here.is_none() || layer(&order, target) > here;
            wrong.extend(
                targets
                    .iter()
                    .filter(above)
                    .map(|target| format!("{file}: {target}")),
            );
            wrong.extend(
                targets
                    .contains("lib")
                    .then(|| format!("{file}: the crate's root")),
            );
        }
        let folders: BTreeSet<_> = imports
            .keys()
            .filter_map(|file| layer(&order, file))
            .collect();
        assert_eq!(
            folders.len(),
            order.len(),
            "{of}: a folder of the order has no file"
        );
        assert_eq!(
            (wrong, in_circles(&imports)),
            (Vec::new(), BTreeSet::new()),
            "{of}"
        );
    }
}

/// What `low/a`, a file of this code, imports.
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
    let files = files.into_iter().chain(beside);
    let files: Vec<_> = files
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
    let told: Vec<_> = in_circles(&imports(&files)).into_iter().collect();
    assert_eq!(told, ["a", "b", "c"]);
}
