//! Everything that pages name exists: the files and headings of links, paths, programs, recipes,
//! tests and rows of records.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs};

use crate::tree::{column, files, none, quoted, root, section, text};

/// Returns the anchors of a page's headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let anchor: String = heading.chars().filter(kept).collect();
        anchors.insert(anchor.replace(' ', "-"));
    }
    anchors
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in files(".md") {
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().unwrap();
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let page = root().join(&path);
            let target = match file {
                "" => page,
                _ => page.parent().unwrap().join(file),
            };
            if !target.exists() {
                wrong.push(format!("{path}: {link}: no such file"));
            } else if !heading.is_empty()
                && !anchors(&fs::read_to_string(&target).unwrap()).contains(heading)
            {
                wrong.push(format!("{path}: {link}: no such heading"));
            }
        }
    }
    none(wrong);
}

/// Returns pages, recipes and scripts, without the changelog, which tells of the past.
fn pages_and_commands() -> Vec<(String, String)> {
    let mut all = [files(".md"), files("justfile"), files(".py")].concat();
    all.retain(|(path, _)| path != "CHANGELOG.md");
    all
}

#[test]
fn paths_in_backticks_exist() {
    const FOLDERS: [&str; 5] = ["crates/", "examples/", "docs/", "benches/", ".ci/"];
    let mut wrong = Vec::new();
    for (path, text) in pages_and_commands() {
        for name in quoted(&text) {
            let is_path = FOLDERS.iter().any(|folder| name.starts_with(folder));
            if is_path && !name.contains([' ', '*', '{', '\n']) && !root().join(name).exists() {
                wrong.push(format!("{path}: `{name}` is not there"));
            }
        }
    }
    none(wrong);
}

/// The program or test target of a command exists.
#[test]
fn targets_of_commands_exist() {
    let mut wrong = Vec::new();
    let mut named = 0;
    for (path, text) in pages_and_commands() {
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let folders: &[&str] = match pair[0].trim_start_matches('`') {
                "--example" => &["examples/"],
                "--bin" => &["benches/src/bin/"],
                "--test" => &["crates/timer-core/tests/", "crates/purgatory/tests/"],
                _ => continue,
            };
            let name = pair[1].trim_matches(|c: char| !c.is_alphanumeric());
            let exists = |folder: &&str| root().join(folder).join(name).exists();
            named += 1;
            if !folders.iter().any(exists) {
                wrong.push(format!("{path}: {} {name}: there is none", pair[0]));
            }
        }
    }
    assert!(named > 10, "{named} targets are named");
    none(wrong);
}

/// `just NAME`, in backticks or in a block of commands, is a recipe.
#[test]
fn recipes_exist() {
    let recipes = text("justfile");
    let mut wrong = Vec::new();
    let mut cited = 0;
    for (path, text) in files(".md") {
        let blocks = text.split("```sh\n").skip(1);
        let in_blocks = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
        let commands = in_blocks.chain(text.lines().flat_map(quoted));
        for name in commands.filter_map(|command| command.strip_prefix("just ")) {
            cited += 1;
            let name = name.split_whitespace().next().unwrap();
            let begins = |line: &str| line.split([' ', ':']).next() == Some(name);
            if !recipes.lines().any(begins) {
                wrong.push(format!("{path}: there is no recipe {name}"));
            }
        }
    }
    assert!(cited > 10, "{cited} recipes are named");
    none(wrong);
}

/// The tests that a promise names exist, and so do tests named in backticks with at least four
/// underscores or an ellipsis at the end, which is the beginning of a test's name. (Names of counters
/// end in `_total`.)
#[test]
fn tests_exist() {
    let mut code = String::new();
    for (_, text) in files(".rs") {
        code.push_str(&text);
    }
    let reliability = text("docs/RELIABILITY.md");
    let promises = section(&reliability, "## Promises").lines();
    let rows = promises.filter(|line| line.starts_with("| **"));
    let mut named: Vec<(String, String)> = Vec::new();
    for word in rows.flat_map(|row| quoted(column(row, 2))) {
        named.push(("docs/RELIABILITY.md".to_owned(), word.to_owned()));
    }
    assert!(named.len() > 10, "{} tests of promises", named.len());
    for (path, text) in files(".md") {
        for word in text.lines().flat_map(quoted) {
            let is_word = word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_…".contains(c));
            let is_beginning = word.contains('_') && word.ends_with('…');
            let is_long = word.matches('_').count() >= 4 && !word.ends_with("_total");
            if is_word && (is_beginning || is_long) {
                named.push((path.clone(), word.to_owned()));
            }
        }
    }
    let mut wrong = Vec::new();
    for (path, word) in named {
        let declared = match word.strip_suffix('…') {
            Some(beginning) => format!("fn {beginning}"),
            None => format!("fn {word}("),
        };
        if !code.contains(&declared) {
            wrong.push(format!("{path}: no test `{word}`"));
        }
    }
    none(wrong);
}

/// A name in backticks after the word "row" or "rows" is the beginning of a recorded row's.
#[test]
fn rows_are_recorded() {
    let mut names = BTreeSet::new();
    for (_, text) in files(".tsv") {
        for line in text.lines() {
            names.insert(line.split('\t').next().unwrap().to_owned());
        }
    }
    let mut wrong = Vec::new();
    for (path, text) in files(".md") {
        let text = text.replace('\n', " ").replace("rows `", "row `");
        for rest in text.split("row `").skip(1) {
            let name = rest.split('`').next().unwrap();
            if !names.iter().any(|row| row.starts_with(name)) {
                wrong.push(format!("{path}: no row `{name}` is recorded"));
            }
        }
    }
    none(wrong);
}
