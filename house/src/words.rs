//! Words that leave a sentence's subject unnamed or make a riddle of a number, in the comments of
//! shipped code and on the pages; terms that another has replaced; and documentation, of tests too,
//! whose first sentence opens with a word that begins no definition.

use crate::{
    pending::{UNNAMED, split},
    tree::{files, is_test, none, shipped},
};

/// Nowhere, in upper or lower case.
const WORDS: [&str; 4] = ["who", "whoever", "whom", "somebody"];
const PHRASES: [&str; 1] = ["so many"];

/// Terms that have left, each with the one that says it now.
const REPLACED: [(&str, &str); 9] = [
    ("check form", "checked watch"),
    ("count form", "threshold watch"),
    ("further watch", "secondary watch"),
    ("hand-turned", "advanced by the test"),
    ("raise an event", "signal a key"),
    ("raises an event", "signals a key"),
    ("rooms", "shards"),
    ("time-out", "timeout"),
    ("when nothing moves", "when idle"),
];

/// Not at the start of a sentence.
const STARTS: [&str; 3] = ["what is ", "those that ", "of which "];

/// Not at the start of an item's documentation.
const OPENINGS: [&str; 10] = [
    "as", "for", "gives", "has", "lets", "of", "so", "tells", "those", "what",
];

/// A run of prose without a break: a comment or a paragraph.
#[derive(Debug, Default, PartialEq)]
struct Passage {
    line: usize,
    text: String,
    /// It documents an item or a module, and is the first paragraph of that.
    opens: bool,
}

#[test]
fn words_name_their_subject() {
    let mut wrong = Vec::new();
    for (path, text) in files(".rs") {
        if ships(&path) {
            wrong.extend(riddles(&path, &comments(shipped(&text))));
        } else if path.starts_with("crates/") {
            wrong.extend(openings(&path, &comments(&text)));
        }
    }
    for (path, text) in files(".md") {
        wrong.extend(riddles(&path, &paragraphs(&text)));
    }
    none(split("words", UNNAMED, wrong));
}

fn ships(path: &str) -> bool {
    let folder = ["benches/", "crates/", "examples/", "house/"]
        .iter()
        .any(|folder| path.starts_with(folder));
    folder && !is_test(path) && !path.contains("/model") && path != "house/src/words.rs"
}

fn riddles(path: &str, passages: &[Passage]) -> Vec<String> {
    let mut wrong = Vec::new();
    for passage in passages {
        for riddle in found(passage) {
            let start: String = passage.text.chars().take(60).collect();
            wrong.push(format!("{path}:{}: {riddle:?} in {start:?}", passage.line));
        }
    }
    wrong
}

/// The first words of documentation in tests that begin no definition.
fn openings(path: &str, passages: &[Passage]) -> Vec<String> {
    let mut wrong = Vec::new();
    for passage in passages {
        if let Some(first) = opening(passage) {
            wrong.push(format!("{path}:{}: {first:?} opens", passage.line));
        }
    }
    wrong
}

/// The first word of documentation, if it begins no definition.
fn opening(passage: &Passage) -> Option<String> {
    let word = passage.text.split(|c: char| !c.is_alphabetic()).next()?;
    let first = word.to_lowercase();
    (passage.opens && OPENINGS.contains(&first.as_str())).then_some(first)
}

/// The refused words of a passage.
fn found(passage: &Passage) -> Vec<String> {
    // Words and phrases anywhere.
    let mut found = Vec::new();
    let text = passage.text.to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .collect();
    for word in WORDS {
        if words.contains(&word) {
            found.push(word.to_owned());
        }
    }
    for phrase in PHRASES {
        if text.contains(phrase) {
            found.push(phrase.to_owned());
        }
    }
    for (old, new) in REPLACED {
        if contains_words(&text, old) {
            found.push(format!("{old}, not {new}"));
        }
    }
    // Then the starts of sentences and of the documentation.
    for start in STARTS {
        if sentences(&text).any(|sentence| sentence.starts_with(start)) {
            found.push(start.trim_end().to_owned());
        }
    }
    if let Some(first) = opening(passage) {
        found.push(format!("{first} ..."));
    }
    found
}

/// Whether a text contains words that are no part of longer ones.
fn contains_words(text: &str, words: &str) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        is_end(before) && is_end(after)
    })
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let marks = |c: char| !c.is_alphanumeric() && c != '`';
    text.split(". ")
        .map(move |sentence| sentence.trim_start_matches(marks))
}

/// The comments of a Rust file, joined over their lines.
fn comments(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut passage = Passage::default();
    let mut mark = "";
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let here = ["//!", "///", "//"]
            .into_iter()
            .find(|mark| line.starts_with(mark))
            .unwrap_or_default();
        let words = line[here.len()..].trim();
        let is_fence = !here.is_empty() && words.starts_with("```");
        fenced = !here.is_empty() && (fenced != is_fence);
        // A line of code, a fence and an empty comment line end a passage.
        let ends = here.is_empty() || here != mark || words.is_empty() || is_fence || fenced;
        if ends && !passage.text.is_empty() {
            passages.push(std::mem::take(&mut passage));
        }
        let is_prose = !here.is_empty() && !words.is_empty() && !is_fence && !fenced;
        if is_prose {
            if passage.text.is_empty() {
                passage.line = at + 1;
                passage.opens = here != "//" && here != mark;
            } else {
                passage.text.push(' ');
            }
            passage.text.push_str(words);
        }
        mark = here;
    }
    if !passage.text.is_empty() {
        passages.push(passage);
    }
    passages
}

/// The paragraphs of a page, without its blocks of code.
fn paragraphs(text: &str) -> Vec<Passage> {
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.push(format!("// {line}"));
    }
    comments(&lines.join("\n"))
}

#[track_caller]
fn refused(code: &str, expected: &[&str]) {
    let mut told = Vec::new();
    for passage in comments(code) {
        told.extend(found(&passage));
    }
    assert_eq!(told, expected, "{code}");
}

#[test]
fn a_riddle_is_told_in_any_case_and_across_lines() {
    refused("// Somebody waits", &["somebody"]);
    refused("// a thread who\n// waits", &["who"]);
    refused("/// Whose turn it is; the whole.", &[]);
    refused("/// Takes so\n/// many watches.", &["so many"]);
    refused("// A count. What is left goes.", &["what is"]);
    refused("// It says what is left.", &[]);
    refused("let who = 1; // the rest", &[]);
    refused("// It has rooms.", &["rooms, not shards"]);
    refused("// A showroom, and a mushrooms' room.", &[]);
}

#[test]
fn an_opening_is_that_of_the_first_paragraph() {
    refused("/// Of many keys the first.", &["of ..."]);
    refused("/// Tells.\n///\n/// So it is.", &["tells ..."]);
    refused("/// Counts.\n///\n/// For each key.", &[]);
    refused("// For each key.", &[]);
    refused(
        "//! What waits.\nfn f() {}\n/// Has a key.",
        &["what ...", "has ..."],
    );
    refused("/// Software.\n/// ```\n/// // So many.\n/// ```", &[]);
}
