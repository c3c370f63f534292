//! Names of tests: short, and those in the pages are there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::tree::{files, is_test, none};

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

/// An ellipsis at the end of a test's name stands for the rest of it.
#[test]
fn tests_named_in_the_pages_exist() {
    let tests: BTreeSet<String> = tests().into_iter().map(|(_, name)| name).collect();
    let mut files_of_tests = BTreeSet::new();
    for (path, _) in files(".rs").into_iter().filter(|(path, _)| is_test(path)) {
        let name = path.rsplit('/').next().unwrap();
        files_of_tests.insert(name.trim_end_matches(".rs").to_owned());
    }

    let (mut wrong, mut found) = (Vec::new(), 0);
    for (path, text) in files(".md") {
        for (word, is_in_column) in cited(&text) {
            found += 1;
            let begins = |start: &str| {
                let first = tests.range(start.to_owned()..).next();
                first.is_some_and(|test| test.starts_with(start))
            };
            let is_there = match word.strip_suffix('…') {
                Some(start) => begins(start),
                None => tests.contains(word) || is_in_column && files_of_tests.contains(word),
            };
            if !is_there {
                wrong.push(format!("{path}: no test `{word}`"));
            }
        }
    }
    assert!(found > 10, "{found} tests are named");
    none(wrong);
}

/// The names of tests in a page: in backticks, words with some underscores that are no counter of
/// the metrics, and all words in the column of a table whose head is `Test`. True for those, which
/// may name a file of tests.
fn cited(page: &str) -> Vec<(&str, bool)> {
    const UNDERSCORES: usize = 4;
    const HEADS: [&str; 2] = ["Test", "Plain test"];
    let mut cited = Vec::new();
    let mut column = None;
    for line in page.lines() {
        // 1. The first line of a table has its heads.
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            column = None;
        } else if column.is_none() {
            column = cells.iter().position(|cell| HEADS.contains(cell));
        }
        // 2. Any other line is one cell.
        for (at, cell) in cells.into_iter().enumerate() {
            let is_in_column = column == Some(at);
            for word in cell.split('`').skip(1).step_by(2) {
                let name = word.trim_end_matches('…');
                let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                let is_long = name.matches('_').count() >= UNDERSCORES && !name.ends_with("_total");
                if plain && (is_in_column || is_long) {
                    cited.push((word, is_in_column));
                }
            }
        }
    }
    cited
}

#[test]
fn names_are_cited_in_prose_and_in_columns() {
    let page =
        "| a | Test |\n|---|---|\n| `b` | `c`, `d/e` |\n\n| a |\n| `f` | `g` |\n`h_i_j_k_l…`\n";
    assert_eq!(cited(page), [("c", true), ("h_i_j_k_l…", false)]);
}
