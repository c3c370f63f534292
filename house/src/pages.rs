//! Pages and the tree agree: every module introduces itself and is on the map, links, commands and
//! paths lead somewhere, figures stand beside the command that makes them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs};

use crate::tree::{files, modules, none, root, text};

#[test]
fn every_module_introduces_itself() {
    // A recipe is a doc test, which an inner comment would keep from being built with the others.
    let head = |path: &str| match path.contains("/guide/recipes/") {
        true => "// ",
        false => "//! ",
    };
    let unintroduced = files(".rs")
        .into_iter()
        .filter(|(path, text)| !text.starts_with(head(path)));
    none(unintroduced.map(|(path, _)| path).collect());
}

#[test]
fn every_module_of_the_crates_is_on_the_map() {
    let map = text("docs/ARCHITECTURE.md");
    let rows: Vec<_> = map.lines().filter(|line| line.starts_with("| ")).collect();
    let named: BTreeSet<_> = rows
        .iter()
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    let mut wrong = Vec::new();
    for of in ["timer-core", "purgatory"] {
        for (path, _) in modules(of) {
            let module = path.trim_end_matches("/mod");
            let above = module.split('/').next().unwrap();
            if module != "lib" && !named.contains(module) && !named.contains(above) {
                wrong.push(format!("{of}/src/{path}.rs is not in docs/ARCHITECTURE.md"));
            }
        }
    }
    none(wrong);
}

/// The rows of the code map and of the invariants name modules that exist.
#[test]
fn every_module_on_the_map_exists() {
    let map = text("docs/ARCHITECTURE.md");
    let mut names = Vec::new();
    for row in map.lines().filter(|line| line.starts_with("| ↳ ")) {
        names.extend(quoted(column(row, 1)));
    }
    for row in invariants(&map) {
        names.extend(quoted(column(row, 2)));
    }
    let mut wrong = Vec::new();
    for name in names {
        if module(name).is_none() {
            wrong.push(format!("docs/ARCHITECTURE.md: no module `{name}`"));
        }
    }
    none(wrong);
}

/// Each invariant is defined where the table says, and each that is defined is in the table.
#[test]
fn invariants_are_defined_where_the_table_says() {
    let page = text("docs/ARCHITECTURE.md");
    let mut wrong = Vec::new();
    let mut listed = BTreeSet::new();
    for row in invariants(&page) {
        let files: Vec<String> = quoted(column(row, 2)).filter_map(module).collect();
        for name in column(row, 1).split(',').map(str::trim) {
            let definitions = [format!("**{name}**"), format!("**{name}.**")];
            let is_defined = |text: &String| definitions.iter().any(|words| text.contains(words));
            if !files.iter().any(is_defined) {
                wrong.push(format!("{name} is not defined in {}", column(row, 2)));
            }
            listed.insert(name);
        }
    }
    assert!(listed.len() > 10, "{} invariants are listed", listed.len());
    // At the head of a file each is an item of a list.
    for of in ["timer-core", "purgatory"] {
        for (path, text) in modules(of) {
            for line in text.lines() {
                let name = line
                    .strip_prefix("//! - **")
                    .and_then(|rest| rest.split("**").next());
                let is_inside = path.contains('/') && !path.starts_with("guide/");
                let name = name.map(|name| name.trim_end_matches('.'));
                if let Some(name) = name
                    && is_inside
                    && !listed.contains(name)
                {
                    wrong.push(format!("{of}/src/{path}.rs: {name} is not in the table"));
                }
            }
        }
    }
    none(wrong);
}

/// The rows of the table of invariants.
fn invariants(page: &str) -> impl Iterator<Item = &str> {
    let section = page.split("## Invariants").nth(1).unwrap();
    let table = section.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| "));
    rows.skip(1)
}

fn column(row: &str, number: usize) -> &str {
    row.split('|').nth(number).unwrap().trim()
}

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The text of a module of one of the crates, by its path without the ending.
fn module(name: &str) -> Option<String> {
    for of in ["timer-core", "purgatory"] {
        for end in [".rs", "/mod.rs"] {
            let path = root().join(format!("crates/{of}/src/{name}{end}"));
            if let Ok(text) = fs::read_to_string(path) {
                return Some(text);
            }
        }
    }
    None
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

#[test]
fn every_link_in_the_pages_leads_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in files(".md") {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for link in text
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
        {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                root().join(&path)
            } else {
                folder.join(file)
            };
            if !target.exists() {
                wrong.push(format!("{path}: {link}: no such file"));
            } else if !heading.is_empty()
                && !anchors(&fs::read_to_string(&target).unwrap()).contains(heading)
            {
                wrong.push(format!("{path}: {link}: no such heading"));
            }
        }
    }
    none(wrong);
}

/// The words after `flag` in a text, as in a command.
fn arguments<'a>(text: &'a str, flag: &str) -> Vec<&'a str> {
    let after = text
        .split(flag)
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next());
    after
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect()
}

#[test]
fn commands_and_paths_in_the_pages_name_what_there_is() {
    let exists = |flag: &str, name: &str| {
        let places = match flag {
            "--example " => vec![format!("examples/{name}")],
            "--bin " => ["", ".rs"]
                .map(|end| format!("benches/src/bin/{name}{end}"))
                .to_vec(),
            "--test " => ["crates/timer-core", "crates/purgatory", "fuzz", "benches"]
                .iter()
                .flat_map(|of| ["", "/main"].map(|end| format!("{of}/tests/{name}{end}.rs")))
                .collect(),
            _ => vec![format!("benches/benches/{name}.rs")],
        };
        places.iter().any(|place| root().join(place).exists())
    };
    let mut wrong = Vec::new();
    let pages = files(".md")
        .into_iter()
        .chain(files("justfile"))
        .chain(files("run"));
    for (path, text) in pages.filter(|(path, _)| path != "CHANGELOG.md") {
        for flag in ["--example ", "--bin ", "--bench ", "--test "] {
            for name in arguments(&text, flag)
                .into_iter()
                .filter(|name| !name.is_empty())
            {
                let fails_by_itself = flag == "--test " && path.ends_with("run");
                if !fails_by_itself && !exists(flag, name) {
                    wrong.push(format!("{path}: {flag}{name}: there is none"));
                }
            }
        }
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "examples/", "docs/", "benches/", ".ci/"]
                .iter()
                .any(|start| quoted.starts_with(start));
            if is_path && !quoted.contains([' ', '*', '{', '\n']) && !root().join(quoted).exists() {
                wrong.push(format!("{path}: `{quoted}` is not there"));
            }
        }
    }
    none(wrong);
}

/// `just NAME`, in backticks or in a block of commands, is a recipe.
#[test]
fn recipes_in_the_pages_exist() {
    let recipes = text("justfile");
    let mut wrong = Vec::new();
    let mut cited = 0;
    for (path, text) in files(".md") {
        let blocks = text.split("```sh\n").skip(1);
        let in_blocks = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
        let commands = in_blocks.chain(text.lines().flat_map(quoted));
        for name in commands.filter_map(|command| command.strip_prefix("just ")) {
            cited += 1;
            let name = name.split_whitespace().next().unwrap();
            let begins = |line: &str| line.split([' ', ':']).next() == Some(name);
            if !recipes.lines().any(begins) {
                wrong.push(format!("{path}: there is no recipe {name}"));
            }
        }
    }
    assert!(cited > 10, "{cited} recipes are named");
    none(wrong);
}

/// A name in backticks with four underscores or more is a test's, or begins one where it ends in
/// an ellipsis. (The ledger looks up those of the promises; names of counters end in `_total`.)
#[test]
fn tests_named_in_the_pages_exist() {
    let mut code = String::new();
    for (_, text) in files(".rs") {
        code.push_str(&text);
    }
    let mut wrong = Vec::new();
    let mut cited = 0;
    for (path, text) in files(".md") {
        for word in text.lines().flat_map(quoted) {
            let name = word.trim_end_matches('…');
            let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_word || name.matches('_').count() < 4 || name.ends_with("_total") {
                continue;
            }
            cited += 1;
            let end = if name == word { "(" } else { "" };
            if !code.contains(&format!("fn {name}{end}")) {
                wrong.push(format!("{path}: no test `{word}`"));
            }
        }
    }
    assert!(cited > 10, "{cited} tests are named");
    none(wrong);
}

#[test]
fn figures_stand_beside_the_command_that_makes_them() {
    const UNITS: [&str; 6] = [" ns", " µs", " ms", " bytes", "M/s", " MiB"];
    let command = |text: &str| {
        ["cargo ", "--bin", "valgrind", ".sh", "just "]
            .iter()
            .any(|c| text.contains(c))
    };
    let mut wrong = Vec::new();
    for (path, text) in files(".md") {
        let measured = [
            "README.md",
            "docs/BENCHMARKS.md",
            "docs/BROKER.md",
            "docs/RELIABILITY.md",
            "crates/purgatory/src/guide/scale.md",
        ];
        if !measured.contains(&path.as_str()) {
            continue;
        }
        for section in text.split("\n## ") {
            let has_table_of_figures = section.lines().any(|line| {
                line.starts_with('|')
                    && line.contains(|c: char| c.is_ascii_digit())
                    && UNITS.iter().any(|unit| line.contains(unit))
            });
            if has_table_of_figures && !command(section) {
                let title = section.lines().next().unwrap_or_default();
                wrong.push(format!("{path}: {title}: figures without a command"));
            }
        }
    }
    none(wrong);
}

#[test]
fn readme_is_read_in_a_minute() {
    const LINES: usize = 120;
    let lines = text("README.md").lines().count();
    assert!(lines <= LINES, "README.md: {lines} lines, at most {LINES}");
}

/// The README and the crate's documentation recommend the same.
#[test]
fn readme_and_crate_documentation_agree() {
    let readme = text("README.md");
    let documentation = text("crates/purgatory/src/lib.rs").replace("//! ", "");
    for heading in ["# Which type\n", "# When not to use it\n"] {
        let recommended = advice(&readme, heading);
        assert!(recommended.len() > 4, "{heading}{recommended:?}");
        assert_eq!(recommended, advice(&documentation, heading));
    }
}

/// The need and the remedy in each row of a section's table, without links and backticks.
fn advice(page: &str, heading: &str) -> Vec<String> {
    let section = page.split(heading).nth(1).unwrap();
    let rows = section.split("\n#").next().unwrap().lines();
    let mut advice = Vec::new();
    for row in rows.filter(|line| line.starts_with("| ")) {
        let columns = [column(row, 1), column(row, 2)].join(" | ");
        let mut plain = String::new();
        for (at, part) in columns.split("](").enumerate() {
            let after_target = part.split_once(')').filter(|_| at > 0);
            plain.push_str(after_target.map_or(part, |(_, rest)| rest));
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
        let folder = path
            .strip_prefix("examples/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(folder) = folder.filter(|folder| *folder != "support") else {
            continue;
        };
        let row = format!("| [{folder}]({folder}) | ");
        let listed = page
            .lines()
            .any(|line| line.starts_with(&row) && line.contains("| `cargo "));
        if !listed {
            wrong.push(format!("examples/README.md: no row {row:?} with a command"));
        }
    }
    none(wrong);
}

#[test]
fn nothing_names_a_machine() {
    let home = ["/ho", "me/"].concat();
    let users = ["/Us", "ers/"].concat();
    let mut wrong = Vec::new();
    for ending in [".md", ".rs", ".sh", ".py", ".toml", "justfile"] {
        for (path, text) in files(ending) {
            for (at, line) in text.lines().enumerate() {
                if [&home, &users]
                    .iter()
                    .any(|name| line.contains(name.as_str()))
                {
                    wrong.push(format!("{path}:{}: {line}", at + 1));
                }
            }
        }
    }
    none(wrong);
}

/// The guide's chapter on operating counts the metrics and the alerts that there are.
#[test]
fn operating_counts_metrics_and_alerts() {
    let metrics = text("docs/METRICS.md");
    let rows = |of: &str| metrics.lines().filter(|line| line.starts_with(of)).count();
    let counts = [rows("| `purgatory_"), rows("| `timer_")];
    let rules = text("docs/prometheus/alerts.yml")
        .matches("- alert: ")
        .count();
    let chapter = text("crates/purgatory/src/guide/operating.md");
    let [form, timer] = counts;
    for words in [
        format!("has {form} metrics, each timer {timer}:"),
        format!("`docs/prometheus/alerts.yml`: {rules},"),
    ] {
        assert!(
            chapter.contains(&words),
            "operating.md does not say {words:?}"
        );
    }
}
