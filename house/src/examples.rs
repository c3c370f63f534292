//! The Rust examples in documentation and on pages, as files of their own in which every line has
//! its number of the page.

use syn::parse_file;

use crate::tree::files;

/// An example that does not parse, or the code of one, padded with empty lines above.
pub(crate) enum Example {
    Code(String),
    NotRust(usize),
}

/// The examples in the crates' documentation and on the pages, each with its file's path.
pub(crate) fn examples() -> Vec<(String, Example)> {
    let mut examples = Vec::new();
    for ending in [".rs", ".md"] {
        for (path, text) in files(ending) {
            let documents = path.starts_with("crates/") && path.contains("/src/");
            if documents || ending == ".md" {
                for example in in_text(&text) {
                    examples.push((path.clone(), example));
                }
            }
        }
    }
    examples
}

fn in_text(text: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut block: Option<Block> = None;
    for (at, line) in text.lines().enumerate() {
        // Only where a feature is on an attribute opens the block: a fence for each case.
        let attribute = line.starts_with("#![");
        if attribute && block.is_none() && line.contains(r#"doc = "```""#) {
            block = Some(Block::open(at, ""));
        }
        if attribute {
            continue;
        }
        let line = prose(line);
        let is_fence = line.trim_start().starts_with("```");
        block = match block {
            // A fence opens a block or closes it; any other line belongs to it.
            None if is_fence => Some(Block::open(at, line)),
            None => None,
            Some(block) if is_fence => {
                examples.extend(block.close());
                None
            }
            Some(mut block) => {
                block.lines.push(shown(line).to_owned());
                Some(block)
            }
        };
    }
    examples
}

/// A line without the signs of a comment.
fn prose(line: &str) -> &str {
    let line = line.trim_start();
    let text = line.strip_prefix("//!").or(line.strip_prefix("///"));
    let text = text.unwrap_or(line);
    text.strip_prefix(' ').unwrap_or(text)
}

/// A line of an example, without the sign that hides it from readers.
fn shown(line: &str) -> &str {
    match line.trim_start().strip_prefix('#') {
        Some("") => "",
        Some(hidden) if hidden.starts_with(' ') => hidden,
        _ => line,
    }
}

struct Block {
    opened_at: usize,
    is_rust: bool,
    lines: Vec<String>,
}

impl Block {
    fn open(at: usize, fence: &str) -> Block {
        let words = fence.trim_start().trim_start_matches('`');
        let mut words = words.split(',').map(str::trim);
        let known = ["", "rust", "no_run", "should_panic", "compile_fail"];
        Block {
            opened_at: at,
            is_rust: words.all(|word| known.contains(&word)),
            lines: Vec::new(),
        }
    }

    /// The example, with a function around it that opens on the fence's line.
    fn close(self) -> Option<Example> {
        if !self.is_rust {
            return None;
        }
        let above = "\n".repeat(self.opened_at);
        let code = format!("{above}fn example() {{\n{}\n}}", self.lines.join("\n"));
        if parse_file(&code).is_ok() {
            Some(Example::Code(code))
        } else {
            Some(Example::NotRust(self.opened_at + 1))
        }
    }
}

#[test]
fn an_example_keeps_its_line_numbers() {
    let page = "//! Text.\n//!\n//! ```\n//! # let a = 1;\n//! #[rustfmt::skip]\n//! let b = a;\n//! ```\n";
    let found = in_text(&format!(
        "{page}/// ```text\n/// no Rust (\n/// ```\n/// ```\n/// fn (\n/// ```\n"
    ));
    let [Example::Code(code), Example::NotRust(11)] = &found[..] else {
        panic!("{} examples", found.len());
    };
    let expected = "\n\nfn example() {\n let a = 1;\n#[rustfmt::skip]\nlet b = a;\n}";
    assert_eq!(code, expected);
}
