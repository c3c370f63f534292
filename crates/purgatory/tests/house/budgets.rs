//! Budgets of size: lines of code and files of each library, public types, settings. A change that
//! needs more makes room elsewhere first; one that needs less lowers the budget.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::tree::{is_code, none, sources, text};

struct Budget {
    of: &'static str,
    /// Lines that are neither blank nor comment, without tests and the guide.
    lines: usize,
    files: usize,
    /// Structs and enums that the crate's root exports and documents.
    types: usize,
    traits: usize,
}

const BUDGETS: [Budget; 2] = [
    Budget {
        of: "purgatory",
        lines: 4296,
        files: 26,
        types: 22,
        traits: 3,
    },
    Budget {
        of: "timer-core",
        lines: 3196,
        files: 24,
        types: 24,
        traits: 4,
    },
];

/// Settings of `Builder`.
const SETTINGS: usize = 8;

/// The names in the `pub use` lists of the crate's root.
fn exported(of: &str) -> BTreeSet<String> {
    let root = text(&format!("crates/{of}/src/lib.rs"));
    let lists = root
        .split("pub use ")
        .skip(1)
        .filter_map(|list| list.split(';').next());
    let words = lists.flat_map(|list| list.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.map(str::to_owned).collect()
}

/// Exported and documented items of these kinds.
fn public(of: &str, kinds: &[&str]) -> BTreeSet<String> {
    let exported = exported(of);
    let mut found = BTreeSet::new();
    for (_, text) in sources(of) {
        let mut hidden = false;
        for line in text.lines() {
            let item = kinds
                .iter()
                .find_map(|kind| line.strip_prefix(&format!("pub {kind} ")));
            let name = item.and_then(|item| item.split(|c: char| !c.is_alphanumeric()).next());
            found.extend(
                name.filter(|name| !hidden && exported.contains(*name))
                    .map(str::to_owned),
            );
            hidden = line == "#[doc(hidden)]" || hidden && line.starts_with("#[");
        }
    }
    found
}

#[test]
fn libraries_keep_their_budgets() {
    let mut wrong = Vec::new();
    for Budget {
        of,
        lines,
        files,
        types,
        traits,
    } in BUDGETS
    {
        let sources = sources(of);
        let code: usize = sources
            .iter()
            .map(|(_, text)| text.lines().filter(is_code).count())
            .sum();
        let [structs, abilities] = [public(of, &["struct", "enum"]), public(of, &["trait"])];
        assert!(
            code > lines / 2 && !structs.is_empty(),
            "{of} has its sources there"
        );
        let measured = [
            ("lines of code", code, lines),
            ("files", sources.len(), files),
            ("public types", structs.len(), types),
            ("public traits", abilities.len(), traits),
        ];
        for (what, is, most) in measured {
            println!("{of}: {is} {what}, at most {most}");
            if is > most {
                wrong.push(format!("{of}: {is} {what}, at most {most}: {structs:?}"));
            }
        }
    }
    none(wrong);
}

#[test]
fn the_builder_keeps_its_settings_few() {
    let builder = text("crates/purgatory/src/handles/lifecycle.rs");
    let settings = builder.matches("(mut self").count();
    assert!(
        (1..=SETTINGS).contains(&settings),
        "{settings} settings, at most {SETTINGS}"
    );
}
