//! Tests that govern the repository: layers of imports and of calls, absences, the ledger, public
//! names, sizes, folded code, words and links. The first lines of each file say what it checks.
//!
//! `cargo test -p house` runs them all; with `-- --nocapture` it prints sizes, and the findings in
//! folders that a rule does not hold for yet.

#[cfg(test)]
mod absences;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod folds;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod names;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod pending;
#[cfg(test)]
mod proofs;
#[cfg(test)]
mod public;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod syntax;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod words;
