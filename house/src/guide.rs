//! The guide: its chapters are short, in one order, and each link leads to the same place on a
//! forge and in rustdoc.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::tree::{files, none, root, text};

const GUIDE: &str = "crates/purgatory/src/guide/";

/// The maximum number of lines of a chapter, without the definitions of its links.
const CHAPTER_LINES: usize = 150;

/// Returns the chapters and the page that lists them, by name.
fn chapters() -> BTreeMap<String, String> {
    let mut chapters = BTreeMap::new();
    for (path, text) in files(".md") {
        if let Some(name) = path.strip_prefix(GUIDE)
            && name != "links.md"
        {
            chapters.insert(name.trim_end_matches(".md").to_owned(), text);
        }
    }
    chapters
}

/// Returns the definitions of links in a page: label and target.
fn definitions(page: &str) -> BTreeMap<&str, &str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix('['));
    lines.filter_map(|line| line.split_once("]: ")).collect()
}

#[test]
fn chapters_are_short() {
    let mut wrong = Vec::new();
    for (name, text) in chapters() {
        let lines = text.lines().count() - definitions(&text).len();
        if lines > CHAPTER_LINES {
            wrong.push(format!("{name}.md: {lines} lines, at most {CHAPTER_LINES}"));
        }
    }
    none(wrong);
}

/// `guide.md` numbers the chapters; each but the last names the next.
#[test]
fn chapters_have_one_order() {
    let chapters = chapters();
    let mut order = Vec::new();
    for line in chapters["guide"].lines() {
        if let Some((number, rest)) = line.split_once(". [")
            && number.parse() == Ok(order.len() + 1)
        {
            order.push(rest.split(']').next().unwrap());
        }
    }
    assert_eq!(order.len() + 1, chapters.len(), "guide.md lists all");
    let mut wrong = Vec::new();
    for pair in order.windows(2) {
        let next = format!("\nNext: [{}]\n", pair[1]);
        if !chapters[pair[0]].contains(&next) {
            wrong.push(format!("{}.md: no line {next:?}", pair[0]));
        }
    }
    none(wrong);
}

/// A link's label means one thing. Its target in rustdoc is in `links.md`; its target on a forge is
/// at the end of each chapter.
#[test]
fn links_agree_with_rustdoc() {
    let links = text(&format!("{GUIDE}links.md"));
    let rustdoc = definitions(&links);
    let mut wrong = Vec::new();
    for (name, page) in chapters() {
        let forge = definitions(&page);
        for (label, target) in &forge {
            // A chapter with the same name and heading, or a file that has the item.
            let same = match rustdoc
                .get(label)
                .map(|item| item.split_once("crate::guide::"))
            {
                None => false,
                Some(Some((_, chapter))) if !chapter.contains("::") => {
                    chapter == target.replace(".md", "")
                }
                Some(_) => root().join(GUIDE).join(target).exists(),
            };
            if !same {
                wrong.push(format!(
                    "{name}.md: [{label}] is {target}, and another in links.md"
                ));
            }
        }
        for label in rustdoc.keys().filter(|label| !forge.contains_key(*label)) {
            // A label that another bracket follows is a link's text.
            let link = format!("[{label}]");
            let mut uses = page.split(&link).skip(1);
            if uses.any(|rest| !rest.starts_with(['[', '('])) {
                wrong.push(format!("{name}.md: [{label}] is not defined"));
            }
        }
    }
    none(wrong);
}
