//! Checks of the code and the pages themselves: layers, absences, lengths, links.

mod budgets;
mod imports;
mod layering;
mod layers;
mod names;
mod tidy;
mod tree;
