//! Sizes: a file and a function that can be read in one go, a line that fits a window. How large
//! each library is is only printed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use syn::{ImplItemFn, ItemFn, TraitItemFn, visit::Visit};

use crate::{
    pending::{LONG, split},
    syntax::{line, lines, parse},
    tree::{files, is_code, is_test, none, shipped, sources},
};

/// At most this many lines.
struct Limits {
    file: usize,
    function: usize,
}

/// Code that ships, the tests at its end taken off.
const SHIPS: Limits = Limits {
    file: 600,
    function: 60,
};
const TESTS: Limits = Limits {
    file: 850,
    function: 100,
};

/// Columns of a line, comments too. Tables are not broken, nor is a string.
const COLUMNS: usize = 100;

#[test]
fn no_line_is_too_long() {
    let mut wrong = Vec::new();
    for (path, text) in files(".rs") {
        for (at, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS && !cannot_break(line) {
                wrong.push(format!(
                    "{path}:{}: {columns} columns, at most {COLUMNS}",
                    at + 1
                ));
            }
        }
    }
    none(split("sizes", LONG, wrong));
}

/// A row of a table in a comment, or a line with a string.
fn cannot_break(line: &str) -> bool {
    match line.trim_start().strip_prefix("//") {
        Some(comment) => comment.contains(" | "),
        None => line.contains('"'),
    }
}

#[test]
fn no_file_and_no_function_is_too_long() {
    let mut wrong = Vec::new();
    for (path, text) in files(".rs") {
        let limits = if is_test(&path) { TESTS } else { SHIPS };
        let length = shipped(&text).lines().count();
        if length > limits.file {
            wrong.push(format!("{path}: {length} lines, at most {}", limits.file));
        }
        for (at, length) in functions(&path, shipped(&text)) {
            if length > limits.function {
                wrong.push(format!("{path}:{at}: a function of {length} lines"));
            }
        }
    }
    none(split("sizes", LONG, wrong));
}

/// The line of each function of a file, and how many lines it takes.
fn functions(path: &str, text: &str) -> Vec<(usize, usize)> {
    let mut lengths = Lengths(Vec::new());
    lengths.visit_file(&parse(path, text));
    lengths.0
}

struct Lengths(Vec<(usize, usize)>);

impl<'ast> Visit<'ast> for Lengths {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let begins = line(function.sig.fn_token.span);
        let ends = function.block.brace_token.span.close().end().line;
        self.0.push((begins, ends - begins + 1));
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        let begins = line(function.sig.fn_token.span);
        let ends = function.block.brace_token.span.close().end().line;
        self.0.push((begins, ends - begins + 1));
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.0
                .push((line(function.sig.fn_token.span), lines(block)));
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

#[test]
fn sizes_of_the_libraries_are_printed() {
    for of in ["timer-core", "purgatory", "purgatory-live"] {
        let sources = sources(of);
        let mut code = 0;
        let mut comments = 0;
        for (_, text) in &sources {
            code += text.lines().filter(is_code).count();
            comments += text.lines().filter(|line| is_plain_comment(line)).count();
        }
        assert!(code > 0, "{of} has its sources there");
        println!(
            "{of}: {code} lines of code, {comments} of comments inside, {} files",
            sources.len()
        );
    }
}

/// A whole line of comment that documents no item.
fn is_plain_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
}
