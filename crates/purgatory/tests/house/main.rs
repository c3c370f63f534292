//! What is checked of the code and the pages themselves: layers, absences, lengths, links.

mod layering;
mod layers;
mod tidy;
