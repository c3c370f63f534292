//! The ledger: no promise, test or documentation example of the old house is lost. The head of
//! `house/ledger.tsv` says how its rows are written, and [`proofs`](crate::proofs) which names they
//! use. A new test needs no row.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fmt};

use crate::{
    proofs::{self, Files, Places, Proofs},
    tree::{files, none, text},
};

const LEDGER: &str = "house/ledger.tsv";

/// Rows of each kind: a row changes, and never goes.
const ROWS: [(&str, usize); 3] = [("example", 172), ("promise", 14), ("test", 694)];

/// One row: a promise, test or example as it was, and what has become of it.
struct Row<'a> {
    line: usize,
    kind: &'a str,
    /// Where it was: a file and a name.
    old: (String, String),
    fate: Fate<'a>,
}

/// The end of a row; a successor is written `path::name`.
enum Fate<'a> {
    Kept,
    Moved(&'a str),
    /// The test of its successor.
    Retired(&'a str),
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, name) = &self.old;
        write!(to, "{LEDGER}:{}: {} {path}::{name}", self.line, self.kind)
    }
}

/// Reads the ledger, or says for each line what is wrong with it.
fn rows(ledger: &str) -> (Vec<Row<'_>>, Vec<String>) {
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    let mut before = "";
    for (at, line) in ledger.lines().enumerate() {
        if line.starts_with('#') {
            continue;
        }
        let number = at + 1;
        let cells: Vec<&str> = line.split('\t').collect();
        let fate = match cells[..] {
            [_, _, _] => Fate::Kept,
            [_, _, _, "moved", successor] => Fate::Moved(successor),
            [_, _, _, "retired", test] | [_, _, _, "retired", test, _] => Fate::Retired(test),
            _ => {
                wrong.push(format!("{LEDGER}:{number}: not a row: {line:?}"));
                continue;
            }
        };
        // In the order of their keys, so that a merge finds its place and no row is there twice.
        let key = cells[..3].join("\t");
        let key = &line[..key.len()];
        if key <= before {
            wrong.push(format!("{LEDGER}:{number}: twice, or not sorted: {key:?}"));
        }
        before = key;
        rows.push(Row {
            line: number,
            kind: cells[0],
            old: (cells[1].to_owned(), cells[2].to_owned()),
            fate,
        });
    }
    (rows, wrong)
}

/// Returns all that is wrong with a ledger, beside the proofs of its tree.
fn faults(ledger: &str, proofs: &Proofs) -> Vec<String> {
    let (rows, mut wrong) = rows(ledger);
    for row in &rows {
        let there = match row.kind {
            "promise" => &proofs.promises,
            "test" => &proofs.tests,
            "example" => &proofs.examples,
            other => {
                wrong.push(format!("{row}: no kind {other:?}"));
                continue;
            }
        };
        if let Some(fault) = fault(row, there, proofs) {
            wrong.push(format!("{row}: {fault}"));
        }
    }
    // What a promise rests on is named in its row of the page, not here.
    for (promise, test) in &proofs.plain_tests {
        if !proofs.tests.iter().any(|(_, name)| name == test) {
            wrong.push(format!("promise {promise:?} names `{test}`: no such test"));
        }
    }
    wrong
}

/// Finds the fault of a row, if it has one; `there` has the names of its kind.
fn fault(row: &Row<'_>, there: &Places, proofs: &Proofs) -> Option<String> {
    let is_there = there.contains(&row.old);
    match row.fate {
        Fate::Kept if is_there => None,
        Fate::Kept => Some(format!("is not there any more{}", hint(&row.old.1, there))),
        Fate::Moved(_) | Fate::Retired(_) if is_there => {
            Some("said to be gone, and is there".into())
        }
        Fate::Moved(successor) if has(there, successor) => None,
        Fate::Moved(successor) => Some(format!("moved to {successor:?}, which is not there")),
        Fate::Retired(test) if has(&proofs.tests, test) => None,
        // An example may teach what another did.
        Fate::Retired(test) if row.kind == "example" && has(there, test) => None,
        Fate::Retired("") => Some("retired without a successor".into()),
        Fate::Retired(test) => Some(format!("retired by {test:?}, which is no test")),
    }
}

/// Whether `path::name` is there.
fn has(places: &Places, successor: &str) -> bool {
    successor
        .split_once("::")
        .is_some_and(|(path, name)| places.contains(&(path.to_owned(), name.to_owned())))
}

/// The places that now have the name: a row's fate, to copy.
fn hint(name: &str, there: &Places) -> String {
    let same = there.iter().filter(|(_, other)| other == name);
    same.map(|(path, _)| format!("; moved\t{path}::{name} ?"))
        .collect()
}

#[test]
fn nothing_of_the_old_house_is_lost() {
    let files: Files = [".rs", ".md"].into_iter().flat_map(files).collect();
    let ledger = text(LEDGER);
    none(faults(&ledger, &Proofs::of(&files)));

    let mut counts = BTreeMap::new();
    for row in rows(&ledger).0 {
        *counts.entry(row.kind).or_insert(0) += 1;
    }
    let counts: Vec<(&str, usize)> = counts.into_iter().collect();
    assert_eq!(counts, ROWS, "{LEDGER}: its rows, by kind");
}

/// Returns all that is wrong with these rows beside a tree of two tests and two examples.
fn told(rows: &str) -> Vec<String> {
    let tests = "#[test] fn ends() {} #[tokio::test] async fn waits() {} fn helper() {}";
    let examples = "/// ```\n/// ```\nfn shown() {} /// ```\n/// ```\nfn also() {} fn plain() {}";
    let files = proofs::tree(&[("tests/t.rs", tests), ("crates/a/src/b.rs", examples)]);
    faults(rows, &Proofs::of(&files))
}

#[test]
fn a_true_ledger_passes() {
    let rows = "# A comment.
example\tcrates/a/src/b.rs\tb::also
example\tcrates/a/src/b.rs\tb::gone\tmoved\tcrates/a/src/b.rs::b::also
example\tcrates/a/src/b.rs\tb::gone 2\tretired\tcrates/a/src/b.rs::b::shown
example\tcrates/a/src/b.rs\tb::gone 3\tretired\ttests/t.rs::ends\tlimits of `also`
promise\tdocs/RELIABILITY.md\tBegins\tmoved\tdocs/RELIABILITY.md::Ends
promise\tdocs/RELIABILITY.md\tEnds
test\ttests/s.rs\tends\tmoved\ttests/t.rs::ends
test\ttests/t.rs\tends
test\ttests/t.rs\tgone\tretired\ttests/t.rs::waits\twaits of `also`
test\ttests/t.rs\twaits";
    assert_eq!(told(rows), [""; 0]);
}

#[test]
fn each_fault_is_told_with_its_row() {
    let gone = "test\ttests/t.rs\tgone";
    let example = "example\tcrates/a/src/b.rs\tb::plain";
    let by_a_test = format!("{example}\tmoved\ttests/t.rs::ends");
    for (row, fault) in [
        // Kept: a name is nowhere, in another file, or of something else.
        (gone.to_owned(), "is not there any more"),
        (
            "test\ttests/s.rs\tends".to_owned(),
            "is not there any more; moved\ttests/t.rs::ends ?",
        ),
        (
            "test\ttests/t.rs\thelper".to_owned(),
            "is not there any more",
        ),
        (example.to_owned(), "is not there any more"),
        (
            "promise\tdocs/RELIABILITY.md\tNever".to_owned(),
            "is not there any more",
        ),
        // Moved: to nowhere, to a file alone, to a thing of another kind.
        (
            format!("{gone}\tmoved\ttests/t.rs::helper"),
            "moved to \"tests/t.rs::helper\", which is not there",
        ),
        (
            format!("{gone}\tmoved\ttests/t.rs"),
            "moved to \"tests/t.rs\", which is not there",
        ),
        (
            by_a_test,
            "moved to \"tests/t.rs::ends\", which is not there",
        ),
        // Retired: for nothing, for what has no test, for an example where a test was.
        (format!("{gone}\tretired\t"), "retired without a successor"),
        (
            format!("{gone}\tretired\t\tthe new `also`"),
            "retired without a successor",
        ),
        (
            format!("{gone}\tretired\ttests/t.rs::gone"),
            "retired by \"tests/t.rs::gone\", which is no test",
        ),
        (
            format!("{gone}\tretired\tcrates/a/src/b.rs::b::also"),
            "retired by \"crates/a/src/b.rs::b::also\", which is no test",
        ),
        // Said to be gone.
        (
            "test\ttests/t.rs\tends\tretired\ttests/t.rs::waits".to_owned(),
            "said to be gone, and is there",
        ),
        ("bench\ttests/t.rs\tends".to_owned(), "no kind \"bench\""),
    ] {
        let mut key = row.split('\t');
        let [kind, path, name] = [(); 3].map(|()| key.next().unwrap());
        let expected = format!("{LEDGER}:1: {kind} {path}::{name}: {fault}");
        assert_eq!(told(&row), [expected], "{row:?}");
    }
}

#[test]
fn a_line_that_is_no_row_is_told() {
    for line in [
        "",
        "test\ttests/t.rs",
        "test\ttests/t.rs\tgone\tretired",
        "test\ttests/t.rs\tgone\tlost\ttests/t.rs::ends",
        "test\ttests/t.rs\tgone\tmoved\ttests/t.rs::ends\tits words",
    ] {
        let rows = format!("# A comment.\n{line}\n");
        let expected = format!("{LEDGER}:2: not a row: {line:?}");
        assert_eq!(told(&rows), [expected]);
    }
}

#[test]
fn a_row_twice_or_out_of_order_is_told() {
    let ends = "test\ttests/t.rs\tends";
    let waits = "test\ttests/t.rs\twaits";
    for (rows, second) in [([ends, ends], ends), ([waits, ends], ends)] {
        let expected = format!("{LEDGER}:2: twice, or not sorted: {second:?}");
        assert_eq!(told(&rows.join("\n")), [expected]);
    }
}

#[test]
fn a_promise_whose_test_is_gone_is_told() {
    let files = proofs::tree(&[("tests/t.rs", "#[test] fn other() {}")]);
    let told = faults("", &Proofs::of(&files));
    assert_eq!(told, ["promise \"Ends\" names `ends`: no such test"]);
}
