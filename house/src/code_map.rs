//! `docs/ARCHITECTURE.md` and the code agree: its map has every module, and its table every invariant.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{column, modules, none, quoted, section, text};

/// Returns the modules of both crates, by their paths without `/mod`.
fn code() -> BTreeMap<String, String> {
    let mut code = BTreeMap::new();
    for (name, text) in [modules("timer-core"), modules("purgatory")].concat() {
        let module = name.strip_suffix("/mod").unwrap_or(&name).to_owned();
        // A name in both crates gets both texts.
        code.entry(module)
            .or_insert_with(String::new)
            .push_str(&text);
    }
    code.remove("lib");
    code
}

#[test]
fn the_map_names_the_modules_that_there_are() {
    let page = text("docs/ARCHITECTURE.md");
    let mut mapped = BTreeSet::new();
    for row in section(&page, "## Code map").lines() {
        if row.starts_with("| ↳ ") {
            mapped.extend(quoted(column(row, 1)));
        }
    }
    let code = code();
    let mut wrong = Vec::new();
    for name in &mapped {
        if !code.contains_key(*name) {
            wrong.push(format!("no module `{name}`"));
        }
    }
    for module in code.keys() {
        let above = module.split('/').next().unwrap();
        if !mapped.contains(module.as_str()) && !mapped.contains(above) {
            wrong.push(format!("{module} is not on the map"));
        }
    }
    none(wrong);
}

/// An invariant is defined in bold, as an item of a list at the head of its file.
#[test]
fn invariants_are_defined_where_the_table_says() {
    let page = text("docs/ARCHITECTURE.md");
    let code = code();
    let mut wrong = Vec::new();
    let mut listed = BTreeSet::new();
    for row in section(&page, "## Invariants").lines() {
        if !row.starts_with("| ") || row.starts_with("| Name ") {
            continue;
        }
        let files: Vec<&String> = quoted(column(row, 2)).map(|name| &code[name]).collect();
        for name in column(row, 1).split(", ") {
            let words = [format!("**{name}**"), format!("**{name}.**")];
            let defines = |text: &&String| words.iter().any(|words| text.contains(words));
            if !files.iter().any(defines) {
                wrong.push(format!("{name} is not defined in {}", column(row, 2)));
            }
            listed.insert(name);
        }
    }
    assert!(listed.len() > 10, "{} invariants are listed", listed.len());
    for (module, text) in &code {
        if !module.contains('/') || module.starts_with("guide/") {
            continue;
        }
        for item in text.split("\n//! - **").skip(1) {
            let name = item.split("**").next().unwrap().trim_end_matches('.');
            if !listed.contains(name) {
                wrong.push(format!("{module}: {name} is not in the table"));
            }
        }
    }
    none(wrong);
}
