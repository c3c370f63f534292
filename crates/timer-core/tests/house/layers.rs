//! The folders of this crate are layers: no file imports from a folder above its own, and no files
//! import each other in a circle. `docs/ARCHITECTURE.md` has the order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod imports;

use std::path::Path;

#[test]
fn no_file_imports_upwards_or_in_a_circle() {
    imports::check("timer-core", &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
}

/// What is wrong with made-up files in the folders `low` and `high`.
#[track_caller]
fn wrong(files: &[(&str, &str)]) -> Vec<String> {
    let page = "```text\nmade-up: low < high\nother: high < low\n```\n";
    let order = imports::order("made-up", page).unwrap();
    assert_eq!(order, ["low", "high"]);
    let rest =
        [("lib", "mod low; mod high; pub use high::Top;"), ("low/mod", ""), ("high/mod", "")];
    let files =
        rest.iter().filter(|(name, _)| !files.iter().any(|(given, _)| given == name)).chain(files);
    let files: Vec<_> =
        files.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    imports::wrong(&order, &files)
}

const UP: &str = "low/a.rs:2 imports high/b.rs: low is below high";

#[test]
fn an_import_that_runs_up_is_found_however_it_is_written() {
    for code in [
        "use crate::high::b::B;",
        "use crate::high::b;",
        "use crate::{low::c::C, high::{b::{B, D as E}, d}};",
        "use super::super::high::b::*;",
        "pub(crate) use crate::high::{b};",
        "fn f() -> crate::high::b::B<'static> { todo!() }",
        "fn f() { g(super::super::high::b::h::<u8>(1)) }",
        "mod inner { use super::super::super::high::b::B; }",
        "const C: [char; 2] = ['\"', '\\'']; use crate::high::b::B;",
        "const C: &str = r#\"\"//\"#; use crate::high::b::B;",
        "/* use /* a */ nested */ use crate::high::b::B; // one",
        "#[cfg(test)] mod tests { fn f() {} } use crate::high::b::B;",
        "#[cfg(test)] use std::{fmt, io}; use crate::high::b::B;",
        "use std::{fmt, io}; impl A { fn a(&'a self) -> crate::high::b::B { 'x' } }",
    ] {
        let files =
            [("low/a", &*format!("//! A.\n{code}")), ("low/c", ""), ("high/b", ""), ("high/d", "")];
        let found = wrong(&files);
        assert!(found.iter().any(|found| found == UP), "{code}: {found:?}");
    }
}

#[test]
fn what_does_not_ship_and_what_runs_down_is_let_through() {
    for code in [
        "// use crate::high::b::B;",
        "/// [`B`](crate::high::b::B)",
        "const C: &str = \"crate::high::b::B\";",
        "const C: &str = r#\"\"crate::high::b::B\"#;",
        "#[cfg(test)]\nmod tests { use crate::high::b::B; fn f() { {} } }",
        "#[cfg(test)]\n#[allow(dead_code)]\nuse crate::{high::b::B};",
        "fn f() { #[cfg(test)] crate::high::b::h(); }",
        "use std::high::b::B; pub(in crate::low) fn f() { other::crate_high() }",
        "use super::c::C; use self::super::c::D; use crate::low::c;",
    ] {
        assert_eq!(wrong(&[("low/a", code), ("low/c", ""), ("high/b", "")]), [""; 0], "{code}");
    }
    assert_eq!(wrong(&[("high/b", "use crate::low::a::A;"), ("low/a", "")]), [""; 0]);
    let of_tests = [
        ("low/mod", "#[cfg(test)] mod model;"),
        ("low/model/mod", "mod steps;"),
        ("low/model/steps", "use crate::high::b::B;"),
        ("high/b", ""),
    ];
    assert_eq!(wrong(&of_tests), [""; 0]);
}

#[test]
fn a_circle_is_told_file_by_file() {
    let three = [
        ("low/a", "use super::b::B;"),
        ("low/b", "\nfn f() { crate::low::c::g() }"),
        ("low/c", "\n\nuse crate::{low::{a::{self, A}}};"),
        ("low/d", "use crate::low::a;"), // not in it
    ];
    let told = "low/a.rs:1 imports low/b.rs:2 imports low/c.rs:3 imports low/a.rs";
    assert_eq!(wrong(&three), [format!("a circle: {told}")]);
    let parent = [("low/mod", "mod a; pub use a::A;"), ("low/a", "use super::Other;")];
    let told = "low/a.rs:1 imports low/mod.rs:1 imports low/a.rs";
    assert_eq!(wrong(&parent), [format!("a circle: {told}")]);
}

#[test]
fn the_root_is_no_place_to_import_from_and_each_file_has_a_folder() {
    let root = "low/a.rs:1 imports crate::Top, not whence it comes";
    assert_eq!(wrong(&[("low/a", "use crate::Top;")]), [root]);
    let stray = ("stray", "use crate::low::a;");
    let circle = "a circle: low/a.rs:1 imports stray.rs:1 imports low/a.rs";
    let found = wrong(&[stray, ("low/a", "use crate::stray;")]);
    assert_eq!(found, ["stray.rs is in no folder of the order", circle]);
    let order = ["low".to_owned()];
    let lib = ("lib".to_owned(), String::new());
    assert_eq!(imports::wrong(&order, &[lib]), ["no file is in low, which the order names"]);
}
