//! What pages say agrees: modules introduce themselves, examples are listed, figures stand beside the
//! command that makes them, the guide names the critical alerts, and README recommends what the
//! crate's documentation does.
//! (`benches/tables.py --check` compares the figures of benches with their records.)
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::tree::{column, files, none, section, text};

#[test]
fn every_module_introduces_itself() {
    let mut wrong = Vec::new();
    for (path, text) in files(".rs") {
        // A recipe is a doc test; an inner comment would keep it from being built with the others.
        let head = match path.contains("/guide/recipes/") {
            true => "// ",
            false => "//! ",
        };
        if !text.starts_with(head) {
            wrong.push(path);
        }
    }
    none(wrong);
}

#[test]
fn figures_stand_beside_the_command_that_makes_them() {
    const MEASURED: [&str; 5] = [
        "README.md",
        "docs/BENCHMARKS.md",
        "docs/BROKER.md",
        "docs/RELIABILITY.md",
        "crates/purgatory/src/guide/scale.md",
    ];
    const UNITS: [&str; 6] = [" ns", " µs", " ms", " bytes", "M/s", " MiB"];
    const COMMANDS: [&str; 5] = ["cargo ", "--bin", "valgrind", ".sh", "just "];
    let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    let is_figure = |line: &str| {
        line.starts_with('|') && line.contains(|c: char| c.is_ascii_digit()) && has(line, &UNITS)
    };
    let mut wrong = Vec::new();
    for path in MEASURED {
        for section in text(path).split("\n## ") {
            if section.lines().any(is_figure) && !has(section, &COMMANDS) {
                let title = section.lines().next().unwrap_or_default();
                wrong.push(format!("{path}: {title}: figures without a command"));
            }
        }
    }
    none(wrong);
}

#[test]
fn readme_is_read_in_a_minute() {
    let lines = text("README.md").lines().count();
    assert!(lines <= 120, "README.md: {lines} lines, at most 120");
}

#[test]
fn readme_and_crate_documentation_recommend_the_same() {
    let readme = text("README.md");
    let documentation = text("crates/purgatory/src/lib.rs").replace("//! ", "");
    for heading in ["# Which type", "# When not to use it"] {
        let recommended = advice(section(&readme, heading));
        assert!(recommended.len() > 4, "{heading}: {recommended:?}");
        assert_eq!(recommended, advice(section(&documentation, heading)));
    }
}

/// Returns the need and the remedy in each row of a table, without links and backticks.
fn advice(table: &str) -> Vec<String> {
    let mut advice = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let columns = [column(row, 1), column(row, 2)].join(" | ");
        // A link's target follows `](`, up to the bracket.
        let mut parts = columns.split("](");
        let mut plain = parts.next().unwrap().to_owned();
        for part in parts {
            plain.push_str(part.split_once(')').unwrap().1);
        }
        advice.push(plain.replace(['[', ']', '`'], ""));
    }
    advice
}

#[test]
fn every_example_is_listed_with_its_command() {
    let page = text("examples/README.md");
    let mut wrong = Vec::new();
    for (path, _) in files("Cargo.toml") {
        let Some(folder) = path.strip_prefix("examples/") else {
            continue;
        };
        let folder = folder.trim_end_matches("/Cargo.toml");
        let row = format!("| [{folder}]({folder}) | ");
        let is_row = |line: &str| line.starts_with(&row) && line.contains("| `cargo ");
        if folder != "support" && !page.lines().any(is_row) {
            wrong.push(format!("examples/README.md: no row {row:?} with a command"));
        }
    }
    none(wrong);
}

#[test]
fn the_guide_names_the_critical_alerts() {
    let rules = text("docs/prometheus/alerts.yml");
    let page = text("crates/purgatory/src/guide/operating.md");
    let named = section(&page, "## Alerts");
    let mut wrong = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        if named.contains(name) != rule.contains("severity: critical") {
            wrong.push(format!("operating.md, Alerts: {name}"));
        }
    }
    none(wrong);
}

#[test]
fn nothing_names_a_machine() {
    let homes = [["/ho", "me/"].concat(), ["/Us", "ers/"].concat()];
    let mut wrong = Vec::new();
    for ending in [".md", ".rs", ".sh", ".py", ".toml", "justfile"] {
        for (path, text) in files(ending) {
            for (at, line) in text.lines().enumerate() {
                if homes.iter().any(|home| line.contains(home)) {
                    wrong.push(format!("{path}:{}: {line}", at + 1));
                }
            }
        }
    }
    none(wrong);
}
