//! Names of tests: short, and those in the pages are there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::tree::{files, none, text};

/// Letters of a test's name.
const LETTERS: usize = 50;

/// The functions of the tree that are tests, with the file that each is in.
fn tests() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, text) in files(".rs") {
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            // The first function behind a test's attribute.
            let function = line
                .strip_prefix("async ")
                .unwrap_or(line)
                .strip_prefix("fn ");
            if let Some(name) = function.filter(|_| is_test) {
                let name = name.split('(').next().unwrap();
                found.push((path.clone(), name.to_owned()));
                is_test = false;
            } else if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
                is_test = true;
            }
        }
    }
    found
}

#[test]
fn test_names_are_short() {
    let long = tests().into_iter().filter(|(_, name)| name.len() > LETTERS);
    none(
        long.map(|(path, name)| format!("{path}: {name}: {} letters", name.len()))
            .collect(),
    );
}

/// A word of a page with this number of underscores is a test's name. An ellipsis at its end stands
/// for the rest of the name.
#[test]
fn tests_named_in_the_pages_exist() {
    const UNDERSCORES: usize = 4;
    let tests: BTreeSet<String> = tests().into_iter().map(|(_, name)| name).collect();
    let (mut wrong, mut found) = (Vec::new(), 0);
    for path in ["docs/RELIABILITY.md", "docs/ARCHITECTURE.md"] {
        let text = text(path);
        for word in text.split('`').skip(1).step_by(2) {
            let (start, all) = (word.trim_end_matches('…'), !word.ends_with('…'));
            let plain = start.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !plain || start.matches('_').count() < UNDERSCORES {
                continue;
            }
            found += 1;
            let mut from = tests.range(start.to_owned()..);
            if !from
                .next()
                .is_some_and(|test| test == start || !all && test.starts_with(start))
            {
                wrong.push(format!("{path}: no test `{word}`"));
            }
        }
    }
    assert!(found > 10, "{found} tests are named");
    none(wrong);
}
