//! Folders that a rule does not hold for yet: the rule's findings there are printed, and anywhere
//! else they fail the test. A folder leaves its list when nothing is found in it any more.

/// Code that still folds: [`folds`](crate::folds).
pub(crate) const FOLDED: &[&str] = &[];

/// Functions, files and lines that are too long: [`sizes`](crate::sizes).
pub(crate) const LONG: &[&str] = &[];

/// Prose with words that leave the subject unnamed: [`words`](crate::words).
pub(crate) const UNNAMED: &[&str] = &[];

/// Folders whose files call each other in circles or upwards: [`calls`](crate::calls).
pub(crate) const TANGLED: &[&str] = &[];

/// Prints the findings in the folders of `pending`, with a count for each folder, and returns the
/// others. A finding begins with its path.
pub(crate) fn split(rule: &str, pending: &[&str], findings: Vec<String>) -> Vec<String> {
    let mut others = Vec::new();
    // Each finding belongs to the first folder that it is in.
    let mut counts = vec![0; pending.len()];
    for finding in findings {
        let folder = pending
            .iter()
            .position(|folder| finding.starts_with(folder));
        match folder {
            Some(folder) => {
                println!("{finding}");
                counts[folder] += 1;
            }
            None => others.push(finding),
        }
    }
    for (folder, count) in pending.iter().zip(counts) {
        println!("{rule}: {count} left in {folder:?}");
    }
    others
}
