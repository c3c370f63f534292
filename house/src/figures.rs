//! Figures that stand twice: a page quotes what `benches/results` has, and names rows that exist.
//!
//! `benches/tables.py` writes the tables between the marks of the pages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{files, none, text};

const RESULTS: &str = "benches/results/";

/// A record's tables, each a list of rows of cells.
type Tables = Vec<Vec<Vec<String>>>;

/// The tables of each record, by its name.
fn records() -> BTreeMap<String, Tables> {
    let mut records = BTreeMap::new();
    for (path, text) in files(".tsv") {
        let Some(name) = path.strip_prefix(RESULTS) else {
            continue;
        };
        // An empty line ends a table; a comment says when and where it was measured.
        let mut tables = vec![Vec::new()];
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            if line.is_empty() {
                tables.push(Vec::new());
            } else {
                let row = line.split('\t').map(str::to_owned).collect();
                tables.last_mut().unwrap().push(row);
            }
        }
        records.insert(name.trim_end_matches(".tsv").to_owned(), tables);
    }
    assert!(records.contains_key("peers"), "the records are there");
    records
}

/// The tables of a page's lines, without the lines under their heads.
fn tables<'a>(lines: impl Iterator<Item = &'a str>) -> Tables {
    let mut tables = Vec::new();
    let mut inside = false;
    for line in lines {
        // Other text ends a table.
        let is_row = line.starts_with('|');
        if is_row && !inside {
            tables.push(Vec::new());
        }
        inside = is_row;
        let is_rule = line.chars().all(|c| "|-: ".contains(c));
        if is_row && !is_rule {
            let cells = line.trim_matches('|').split('|');
            let row = cells.map(|cell| cell.trim().to_owned()).collect();
            tables.last_mut().unwrap().push(row);
        }
    }
    tables
}

#[test]
fn tables_between_marks_are_the_recorded_ones() {
    let pages = text("docs/BENCHMARKS.md");
    let mut wrong = Vec::new();
    for (name, recorded) in records() {
        let mark = format!("\n<!-- {name} -->\n");
        let Some((_, after)) = pages.split_once(&mark) else {
            wrong.push(format!("no page has the mark {name}"));
            continue;
        };
        let shown = tables(after.split("<!-- end -->").next().unwrap().lines());
        // Of these the page has chosen rows, whose figures the next test compares.
        let is_recorded = match name.as_str() {
            "peers" | "bytes" => has_recorded_rows(&shown, &recorded),
            "schemes" => shown == [side_by_side(&recorded)],
            _ => {
                shown.len() == recorded.len() && shown.iter().all(|table| is_part(table, &recorded))
            }
        };
        if !is_recorded {
            wrong.push(format!("{name} is not as recorded: run benches/tables.py"));
        }
    }
    none(wrong);
}

/// Joins the last columns of all tables, by their first columns, as `benches/tables.py` does.
fn side_by_side(tables: &Tables) -> Vec<Vec<String>> {
    // The head: what the columns are of, and the first words of each table.
    let mut head = vec![tables[0][0].last().unwrap().clone()];
    for table in tables {
        head.push(table[0][0].split(',').next().unwrap().to_owned());
    }

    // A table without that row leaves a cell empty.
    let mut joined = vec![head];
    for row in &tables[0][1..] {
        let mut cells = vec![row[0].clone()];
        for table in tables {
            let of = table.iter().find(|other| other[0] == row[0]);
            cells.push(of.map_or_else(String::new, |other| other.last().unwrap().clone()));
        }
        joined.push(cells);
    }
    joined
}

/// Returns whether a table is some rows and columns of a recorded one: its first row is the head.
fn is_part(shown: &[Vec<String>], recorded: &Tables) -> bool {
    let of = recorded.iter().find(|table| table[0][0] == shown[0][0]);
    of.is_some_and(|table| {
        let place = |head: &String| table[0].iter().position(|other| other == head);
        let Some(places) = shown[0].iter().map(place).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let is_recorded = |row: &Vec<String>| {
            let shows = |other: &&Vec<String>| {
                let cells = places.iter().map(|&at| &other[at]);
                cells.eq(row.iter())
            };
            table.iter().any(|other| shows(&other))
        };
        shown.len() > 1 && shown.iter().all(is_recorded)
    })
}

/// Returns whether each row that is shown, but for the heads, names a recorded one.
fn has_recorded_rows(shown: &Tables, recorded: &Tables) -> bool {
    let names: BTreeSet<&str> = recorded
        .iter()
        .flatten()
        .map(|row| row[0].as_str())
        .collect();
    let mut rows = shown.iter().flat_map(|table| &table[1..]);
    let is_recorded = |row: &Vec<String>| names.contains(row[0].trim_matches('`'));
    shown.iter().map(Vec::len).sum::<usize>() > 3 && rows.all(is_recorded)
}

/// A row of a table that names a row of `peers` in a cell of its own has only figures of that row.
#[test]
fn a_row_that_is_quoted_has_its_recorded_figures() {
    let mut recorded = BTreeMap::new();
    let records = records();
    for row in records["peers"].iter().chain(&records["bytes"]).flatten() {
        recorded.insert(format!("`{}`", row[0]), row.clone());
    }
    let mut wrong = Vec::new();
    let mut quoted = 0;
    for (path, text) in files(".md") {
        for row in tables(text.lines()).iter().flatten() {
            let Some(figures) = row.iter().find_map(|cell| recorded.get(cell)) else {
                continue;
            };
            quoted += 1;
            for cell in row.iter().filter(|cell| starts_with_a_digit(cell)) {
                // Words may follow it; a space may be part of it, as in 1 024.
                let is_quoted = |is: &String| cell == is || cell.starts_with(&format!("{is} "));
                if !figures.iter().any(is_quoted) {
                    wrong.push(format!("{path}: {cell} is not in the row {}", figures[0]));
                }
            }
        }
    }
    assert!(quoted >= 3, "README quotes three rows");
    none(wrong);
}

fn starts_with_a_digit(cell: &str) -> bool {
    cell.trim_start_matches('*')
        .starts_with(|c: char| c.is_ascii_digit())
}

/// After the word "row" or "rows", a name in backticks is the beginning of a recorded row's.
#[test]
fn rows_that_pages_name_are_recorded() {
    let mut names = BTreeSet::new();
    for tables in records().into_values() {
        for row in tables.into_iter().flatten() {
            names.insert(row[0].clone());
        }
    }
    let mut wrong = Vec::new();
    for (path, text) in files(".md") {
        for words in ["row `", "rows `", "rows\n`", "row\n`"] {
            for rest in text.split(words).skip(1) {
                let name = rest.split('`').next().unwrap();
                if !names.iter().any(|row| row.starts_with(name)) {
                    wrong.push(format!("{path}: no row `{name}` is recorded"));
                }
            }
        }
    }
    none(wrong);
}

/// A bench that a page, a recipe or a stage runs is there.
#[test]
fn benches_that_are_named_exist() {
    let mut wrong = Vec::new();
    let mut named = 0;
    let manifest = text("benches/Cargo.toml");
    for kind in [".md", ".py", "justfile"] {
        for (path, text) in files(kind) {
            for rest in text.split("purgatory-benches --bin ").skip(1) {
                let is_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                let name: String = rest.chars().take_while(is_name).collect();
                named += 1;
                if !manifest.contains(&format!("[[bin]]\nname = \"{name}\"\n")) {
                    wrong.push(format!("{path}: there is no bench {name}"));
                }
            }
        }
    }
    assert!(named >= 5, "pages and recipes name the benches");
    none(wrong);
}
