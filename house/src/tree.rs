//! The tree as the checks read it: files by their endings, the shipped code, and parts of pages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Returns the text of a file, by its path below the root.
pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the files with this ending, as paths below the root and texts, without build outputs.
pub(crate) fn files(ending: &str) -> Vec<(String, String)> {
    fn walk(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "target" && name != ".git" {
                walk(&path, ending, found);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    // Sort by path, so that findings are in that order, too.
    let root = root();
    let mut found = Vec::new();
    walk(&root, ending, &mut found);
    assert!(!found.is_empty(), "no file {ending}");
    found.sort();
    let mut files = Vec::new();
    for path in found {
        let below = path.strip_prefix(&root).unwrap().to_str().unwrap();
        files.push((below.to_owned(), fs::read_to_string(&path).unwrap()));
    }
    files
}

/// Returns the files below a crate's `src`, as names without the ending `.rs` and texts. The tests
/// at the ends of files are left out.
pub(crate) fn modules(of: &str) -> Vec<(String, String)> {
    let src = format!("crates/{of}/src/");
    let mut modules = Vec::new();
    for (path, text) in files(".rs") {
        if let Some(name) = path.strip_prefix(&src) {
            let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            modules.push((name.trim_end_matches(".rs").to_owned(), shipped.to_owned()));
        }
    }
    assert!(!modules.is_empty(), "{of} has its sources there");
    modules
}

/// Returns the part of a page under a heading, up to the next heading.
#[track_caller]
pub(crate) fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    section.split("\n#").next().unwrap()
}

/// Returns a column of a table's row; the first column is 1.
pub(crate) fn column(row: &str, number: usize) -> &str {
    row.split('|').nth(number).unwrap().trim()
}

/// Returns the words in backticks.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Fails with all findings, not only the first.
#[track_caller]
pub(crate) fn none(wrong: Vec<String>) {
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
