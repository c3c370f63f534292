//! Tests that govern the repository: layers of imports, absences, and what pages say. The first
//! lines of each file name its checks. None is about the style of code.

#[cfg(test)]
mod absences;
#[cfg(test)]
mod code_map;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod names;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod tree;
