//! Rust files as syntax trees.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proc_macro2::{Span, TokenStream};
use syn::{
    Attribute, Expr, Meta, Stmt, Token, parse::Parser, punctuated::Punctuated, spanned::Spanned,
};

/// The tree of a file; `path` is for the message if it is none.
#[track_caller]
pub(crate) fn parse(path: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The line where a span starts, counted from 1.
pub(crate) fn line(span: Span) -> usize {
    span.start().line
}

/// Returns how many lines a piece of code takes.
pub(crate) fn lines(code: &impl Spanned) -> usize {
    let span = code.span();
    span.end().line - span.start().line + 1
}

/// Whether an item is built for tests only: `#[test]`, `#[tokio::test]`, `#[cfg(test)]` and
/// `#[cfg(all(test, ...))]`.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = attribute
            .path()
            .segments
            .last()
            .is_some_and(|segment| segment.ident == "test");
        is_test || is_cfg_test(&attribute.meta)
    })
}

fn is_cfg_test(meta: &Meta) -> bool {
    let Meta::List(list) = meta else { return false };
    let tokens = list.tokens.to_string();
    let condition = tokens
        .trim_start_matches("all")
        .trim_start_matches([' ', '(']);
    let first = condition.split([' ', ',', ')']).next();
    list.path.is_ident("cfg") && first == Some("test")
}

/// The expressions in a macro's brackets, where these are expressions or statements.
pub(crate) fn macro_arguments(tokens: &TokenStream) -> Vec<Stmt> {
    let list = Punctuated::<Expr, Token![,]>::parse_terminated;
    if let Ok(arguments) = list.parse2(tokens.clone()) {
        return arguments
            .into_iter()
            .map(|argument| Stmt::Expr(argument, None))
            .collect();
    }
    syn::Block::parse_within
        .parse2(tokens.clone())
        .unwrap_or_default()
}
