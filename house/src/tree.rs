//! The tree as the checks read it: files by their endings, and the code that ships.
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

/// The text of a file, by its path below the root.
pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Files of the tree with this ending, as paths below its root; without what is built.
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
    // In the order of their paths, so that findings are, too.
    let root = root();
    let mut found = Vec::new();
    walk(&root, ending, &mut found);
    assert!(!found.is_empty(), "no file {ending}");
    let mut files = Vec::new();
    for path in found {
        let below = path.strip_prefix(&root).unwrap().to_str().unwrap();
        files.push((below.to_owned(), fs::read_to_string(&path).unwrap()));
    }
    files.sort();
    files
}

/// The syntax tree of a Rust file; `path` is for the message if it is none.
#[track_caller]
pub(crate) fn parse(path: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The first block of text under a heading of a page.
pub(crate) fn drawing<'a>(page: &'a str, heading: &str) -> &'a str {
    let section = page.split(heading).nth(1).unwrap();
    let block = section.split("```text").nth(1).unwrap();
    block.split("```").next().unwrap()
}

/// The part of a file that ships: without the tests at its end.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

/// The files below a crate's `src`: names without the ending, and texts.
pub(crate) fn modules(of: &str) -> Vec<(String, String)> {
    let src = format!("crates/{of}/src/");
    let named = |(path, text): (String, String)| {
        let name = path.strip_prefix(&src)?.strip_suffix(".rs")?;
        Some((name.to_owned(), text))
    };
    files(".rs").into_iter().filter_map(named).collect()
}

/// The files of a crate that ship, as [`modules`]. The guide is its readers', and files of a
/// `#[cfg(test)] mod` are tests.
pub(crate) fn sources(of: &str) -> Vec<(String, String)> {
    let mut sources = modules(of);
    for (_, text) in &mut sources {
        *text = shipped(text).to_owned();
    }
    let tests: Vec<String> = sources.iter().flat_map(test_modules).collect();
    sources.retain(|(name, _)| {
        let is_test = |test| name == test || name.starts_with(&format!("{test}/"));
        !name.starts_with("guide/") && !tests.iter().any(is_test)
    });
    assert!(!sources.is_empty(), "{of} has its sources there");
    sources
}

/// The names of files that a file declares by `#[cfg(test)] mod name;`.
fn test_modules(file: &(String, String)) -> Vec<String> {
    let (name, text) = file;
    let folder = name.strip_suffix("mod").unwrap_or("");
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let pairs = lines
        .windows(2)
        .filter(|pair| pair[0].starts_with("#[cfg(test)"));
    let named = pairs.filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'));
    named.map(|module| format!("{folder}{module}")).collect()
}

/// Fails with all that is wrong, not only the first.
#[track_caller]
pub(crate) fn none(wrong: Vec<String>) {
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
