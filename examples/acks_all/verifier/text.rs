//! The text whose lines are the records: from the repository, a file, or standard input.

use std::io::{self, Read};
use std::{fs::File, path::Path};

use anyhow::{Context, Result, ensure};

/// The text in the repository, read by default.
const DEFAULT: &str = include_str!("../text/waiting-room.txt");

/// The longest text that is read: a pipe may be endless.
const BYTES_MAX: u64 = 16 << 20;

/// Lines of text, at least one; an empty line is a record too.
#[derive(Debug)]
pub(crate) struct Text {
    lines: Vec<String>,
}

impl Text {
    /// Reads `input`: a path, or `-` for standard input; without one, the text in the repository.
    pub(crate) fn load(input: Option<&Path>) -> Result<Self> {
        match input {
            None => Self::read(DEFAULT.as_bytes(), "the built-in text"),
            Some(path) if path == Path::new("-") => Self::read(io::stdin(), "standard input"),
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
                Self::read(file, &name)
            }
        }
    }

    /// Reads all of `source`; `name` is what errors call it.
    pub(crate) fn read(source: impl Read, name: &str) -> Result<Self> {
        // Read one byte more than allowed, to notice a longer text.
        let mut source = source.take(BYTES_MAX + 1);
        let mut body = String::new();
        let read = source.read_to_string(&mut body);
        let too_long = source.limit() == 0;
        let mib = BYTES_MAX >> 20;
        // Check the length first: a longer text may be cut inside a character.
        ensure!(
            !too_long,
            "{name} is longer than the {mib} MiB that are read"
        );
        read.with_context(|| format!("cannot read {name}"))?;
        ensure!(
            !body.is_empty(),
            "{name} is empty: there is no line to send"
        );
        let lines = body.lines().map(String::from).collect();
        Ok(Self { lines })
    }

    /// Returns a line, without its newline, and its number; after the last line comes the first
    /// again.
    pub(crate) fn line(&self, number: u64) -> (u32, &str) {
        let place = number % self.lines.len() as u64;
        (place as u32, &self.lines[place as usize])
    }
}
