//! What the drivers in Rust share: the commands of `protocol.py`, read and answered.

use std::{collections::HashMap, error::Error, io, process, str::FromStr, time::Duration};

/// Of a driver for its client; who runs it waits longer.
pub const WAIT: Duration = Duration::from_secs(20);

/// What a command answers: its words, or `None` where the client has no such thing.
pub type Answer = Result<Option<Vec<String>>, Box<dyn Error>>;

/// A line of input.
pub struct Command(HashMap<String, String>);

impl Command {
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> T {
        self.0.get(name).and_then(|value| value.parse().ok()).unwrap_or(default)
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        self.get(name, default.to_owned())
    }

    /// What is produced: each driver makes the same.
    pub fn values(&self) -> Vec<Vec<u8>> {
        let (prefix, size) = (self.text("prefix", ""), self.get("size", 60));
        let value = |at| {
            let mut value = format!("{prefix}-{at}-").into_bytes();
            value.resize(value.len().max(size), b'x');
            value
        };
        (0..self.get("count", 1)).map(value).collect()
    }
}

/// Answers every line of the input; the first argument is the broker's address.
pub fn serve(answer: impl Fn(&str, &str, Command) -> Answer) {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: IP:PORT");
        process::exit(2);
    };
    for line in io::stdin().lines() {
        let line = line.expect("the input is text");
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let arguments = words.filter_map(|word| word.split_once('='));
        let command =
            Command(arguments.map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        match answer(&address, verb, command) {
            Ok(Some(words)) => println!("ok {}", words.join(" ")),
            Ok(None) => println!("cannot"),
            Err(error) => println!("error {}", format!("{error:?} {error}").replace('\n', " ")),
        }
    }
}
