//! The text whose lines are the records: from the repository, a file, or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The text that is in the repository.
const DEFAULT: &str = include_str!("../text/waiting-room.txt");

/// The longest text that is read; the rest of an endless pipe is nobody's record.
const BYTES_MAX: u64 = 64 << 20;

/// Lines of text; an empty line is a record too.
#[derive(Debug)]
pub struct Text {
    body: String,
    /// Where each line starts and ends in the body, its newline left out.
    lines: Vec<(u32, u32)>,
}

impl Text {
    /// Reads `input`: a path, or `-` for standard input; without one, the text in the repository.
    pub fn load(input: Option<&Path>) -> Result<Self> {
        match input {
            None => Self::from_body(DEFAULT.to_owned(), "the built-in text"),
            Some(path) if path == Path::new("-") => {
                Self::read(io::stdin().lock(), "standard input")
            }
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
                Self::read(file, &name)
            }
        }
    }

    /// Reads all of `source`; `name` is what errors call it.
    pub fn read(source: impl Read, name: &str) -> Result<Self> {
        let mut body = Vec::new();
        source
            .take(BYTES_MAX + 1)
            .read_to_end(&mut body)
            .with_context(|| format!("cannot read {name}"))?;
        if body.len() as u64 > BYTES_MAX {
            bail!("{name} is longer than the {} MiB that are read", BYTES_MAX >> 20);
        }
        let body = String::from_utf8(body).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            anyhow::anyhow!("{name} is not UTF-8 text: the byte at {at} is not part of a character")
        })?;
        Self::from_body(body, name)
    }

    fn from_body(body: String, name: &str) -> Result<Self> {
        let mut lines = Vec::new();
        let mut start = 0;
        for line in body.split_inclusive('\n') {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            let bare = bare.strip_suffix('\r').unwrap_or(bare);
            lines.push((start, start + bare.len() as u32));
            start += line.len() as u32;
        }
        ensure!(!lines.is_empty(), "{name} is empty: there is no line to send");
        Ok(Self { body, lines })
    }

    /// How many lines there are, at least one.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Never: an empty text is refused when it is read.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// A line, without its newline.
    pub fn line(&self, number: u32) -> &str {
        let (start, end) = self.lines[number as usize];
        &self.body[start as usize..end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &[u8]) -> Result<Text> {
        Text::read(body, "a test")
    }

    #[test]
    fn lines_keep_their_text_and_lose_their_newlines() {
        let text = text("one\r\n\nthrée".as_bytes()).unwrap();
        let lines: Vec<&str> = (0..text.len() as u32).map(|n| text.line(n)).collect();
        assert_eq!(lines, ["one", "", "thrée"]);
    }

    #[test]
    fn the_text_in_the_repository_has_lines() {
        assert!(Text::load(None).unwrap().len() > 100);
    }

    #[test]
    fn errors_name_the_input() {
        let said = |result: Result<Text>| format!("{:#}", result.unwrap_err());
        assert_eq!(said(text(b"")), "a test is empty: there is no line to send");
        assert!(said(text(b"ab\xff")).starts_with("a test is not UTF-8 text: the byte at 2"));
        assert!(
            said(Text::load(Some(Path::new("/no/such/file"))))
                .starts_with("cannot open /no/such/file: ")
        );
        let directory = said(Text::load(Some(Path::new("/"))));
        assert!(directory.contains(" /: "), "{directory}");
        let endless = said(Text::read(io::repeat(b'x'), "a pipe"));
        assert_eq!(endless, "a pipe is longer than the 64 MiB that are read");
    }
}
