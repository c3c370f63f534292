//! Tests that govern the repository: layers of imports, absences, the ledger, public names, and what
//! pages say. The first lines of each file say what it checks. None is about how code is written.

#[cfg(test)]
mod absences;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod proofs;
#[cfg(test)]
mod public;
#[cfg(test)]
mod tree;
