//! The folders and root files of `timer-core` and `purgatory` are layers: no file imports from a
//! layer above its own, and no files import each other in a circle. The order is in
//! `docs/ARCHITECTURE.md`. Texts and tests do not count; `lib.rs` may import from everywhere.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    Attribute, Expr, ItemMod, ItemUse, Macro, Path, Token, UseTree, Visibility, parse_quote,
};
use syn::{punctuated::Punctuated, visit, visit::Visit};

use crate::tree::{modules, none, section, text};

/// The one circle of two files. A trait names the type that is generic over it: an engine is given
/// its shard, and a shard has its engine's records.
const ONE_DEFINITION: [&str; 2] = ["table/mod", "table/shard"];

#[test]
fn no_file_imports_upwards_or_in_a_circle() {
    let page = text("docs/ARCHITECTURE.md");
    let orders = section(&page, "## Layers").replace("\n  ", " ");
    let mut wrong = Vec::new();
    for of in ["timer-core", "purgatory"] {
        let order = orders.split(&format!("\n{of}: ")).nth(1).unwrap();
        let layers = layers(order.lines().next().unwrap());
        let mut imports = imports(&modules(of));
        if let Some(targets) = imports.get_mut(ONE_DEFINITION[1]) {
            let was_circle = targets.remove(ONE_DEFINITION[0]);
            assert!(was_circle, "it is no circle any more");
        }
        for (file, targets) in &imports {
            let here = layers.get(folder(file));
            if here.is_none() {
                wrong.push(format!("{of}: {file} is in no layer"));
            }
            for target in targets {
                if target == "lib" {
                    wrong.push(format!("{of}: {file} imports from the crate's root"));
                } else if layers.get(folder(target)) > here {
                    wrong.push(format!("{of}: {file} imports {target}, which is above"));
                }
            }
        }
        for name in layers.keys() {
            if !imports.keys().any(|file| folder(file) == *name) {
                wrong.push(format!("{of}: no file is in the layer {name}"));
            }
        }
        for file in in_circles(&imports) {
            wrong.push(format!("{of}: {file} is in a circle of imports"));
        }
    }
    none(wrong);
}

/// Reads `a < b, c < d`; returns the place of each name, with 0 for the lowest.
fn layers(order: &str) -> BTreeMap<&str, usize> {
    let mut places = BTreeMap::new();
    for (place, names) in order.split(" < ").enumerate() {
        for name in names.split(", ") {
            places.insert(name, place);
        }
    }
    places
}

/// Returns the layer of a file: its folder, or the file itself at the crate's root.
fn folder(file: &str) -> &str {
    file.split('/').next().unwrap()
}

/// The files that each file imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the imports of files, which are given by name and text.
fn imports(files: &[(String, String)]) -> Imports {
    let mut names = BTreeMap::new();
    for (name, _) in files {
        names.insert(module(name), name.clone());
    }
    let mut imports = Imports::new();
    for (name, text) in files.iter().filter(|(name, _)| name != "lib") {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut reader = Reader {
            inside: module(name),
            names: &names,
            found: BTreeSet::new(),
        };
        reader.visit_file(&file);
        reader.found.remove(name);
        imports.insert(name.clone(), reader.found);
    }
    imports
}

/// Returns the path of a file's module, from the crate's root.
fn module(name: &str) -> Vec<String> {
    let path = name.strip_suffix("/mod").unwrap_or(name);
    let parts = path.split('/').filter(|part| *part != "lib");
    parts.map(str::to_owned).collect()
}

/// Returns the files that import each other in a circle, and those between two circles.
fn in_circles(imports: &Imports) -> BTreeSet<String> {
    let mut remaining = imports.clone();
    loop {
        let before = remaining.len();
        // A file that imports none of the others is in no circle,
        let files: BTreeSet<_> = remaining.keys().cloned().collect();
        remaining.retain(|_, targets| targets.iter().any(|target| files.contains(target)));
        // nor is one that none of the others imports.
        let targets: BTreeSet<_> = remaining.values().flatten().cloned().collect();
        remaining.retain(|file, _| targets.contains(file));
        if remaining.len() == before {
            return remaining.into_keys().collect();
        }
    }
}

/// Finds the files that the code of one file imports.
struct Reader<'a> {
    /// The module that is read.
    inside: Vec<String>,
    /// The crate's files by their modules.
    names: &'a BTreeMap<Vec<String>, String>,
    found: BTreeSet<String>,
}

impl Reader<'_> {
    /// Adds the file that a path leads to, which is the file of the path's longest part that is a
    /// module. A path that begins with a name is taken for a child module's.
    fn add(&mut self, path: &[String]) {
        let mut from = self.inside.clone();
        for part in path {
            match part.as_str() {
                "crate" => from.clear(),
                "self" => {}
                "super" => drop(from.pop()),
                _ => from.push(part.clone()),
            }
        }
        while !self.names.contains_key(&from) {
            from.pop();
        }
        self.found.insert(self.names[&from].clone());
    }

    fn add_leaves(&mut self, tree: &UseTree, mut path: Vec<String>) {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.add_leaves(&part.tree, path);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_leaves(tree, path.clone());
                }
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.add(&path);
            }
            UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.add(&path);
            }
            UseTree::Glob(_) => self.add(&path),
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_leaves(&item.tree, Vec::new());
        }
    }

    /// Paths in a module inside the file start from that module.
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.inside.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.inside.pop();
        }
    }

    /// A path of one part names an item of the file itself; a leading colon begins another crate's
    /// path.
    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let parts = path.segments.iter().map(|part| part.ident.to_string());
            self.add(&parts.collect::<Vec<_>>());
        }
        visit::visit_path(self, path);
    }

    /// Skips visibilities: their paths import nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    /// Reads the arguments of macros that are called like functions.
    fn visit_macro(&mut self, call: &'ast Macro) {
        let arguments = Punctuated::<Expr, Token![,]>::parse_terminated;
        for argument in call.parse_body_with(arguments).iter().flatten() {
            self.visit_expr(argument);
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.contains(&parse_quote!(#[cfg(test)]))
}

/// Returns the imports of `low/a`, a file with this code.
#[track_caller]
fn imported(code: &str) -> Vec<String> {
    let others = ["lib", "low/mod", "low/c", "high/b"];
    let mut files: Vec<(String, String)> = others.map(|name| (name.into(), String::new())).into();
    files.push(("low/a".to_owned(), code.to_owned()));
    imports(&files)["low/a"].iter().cloned().collect()
}

#[test]
fn an_import_is_found_however_it_is_written() {
    for code in [
        "use crate::high::b::B;",
        "use crate::{low::a::X, high::{b::{B, D as E}}};",
        "use super::super::high::b::*;",
        "fn f() -> crate::high::b::B<'static> { g(super::super::high::b::h::<u8>(1)) }",
        "mod inner { use super::super::super::high::b::B; }",
        "fn f() { assert_eq!(1, crate::high::b::ONE, \"text\"); }",
    ] {
        assert_eq!(imported(code), ["high/b"], "{code}");
    }
    for code in [
        "/// [`B`](crate::high::b::B)\nconst C: &str = \"crate::high::b::B\";",
        "#[cfg(test)]\nmod tests { use crate::high::b::B; fn f() { {} } }",
        "#[cfg(test)]\n#[allow(dead_code)]\nuse crate::{high::b::B};",
        "pub(in crate::low) fn f() {}",
    ] {
        assert_eq!(imported(code), [""; 0], "{code}");
    }
    let beside = imported("use super::c::C; use crate::Top;");
    assert_eq!(beside, ["lib", "low/c"]);
}

#[test]
fn a_circle_is_told_and_what_only_leads_there_is_not() {
    let files = [
        ("a", "use crate::b::B;"),
        ("b", "use super::c;"),
        ("c", "use crate::{a, e};"),
        ("d", "use crate::a;"),
        ("e", ""),
        ("lib", "use a::A;"),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let told: Vec<_> = in_circles(&imports(&files)).into_iter().collect();
    assert_eq!(told, ["a", "b", "c"]);
}
