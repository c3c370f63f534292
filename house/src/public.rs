//! The public types, traits and builder settings of each library, by name: an addition is a line of
//! this file.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use syn::{
    Attribute, File, FnArg, Ident, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, ReceiverKind,
    ReturnType, Signature, Type, UseTree, Visibility, visit::Visit,
};

use crate::tree::{none, parse, sources, text};

struct Public {
    of: &'static str,
    /// Structs and enums that the crate's root exports and documents.
    types: &'static [&'static str],
    traits: &'static [&'static str],
    /// Methods that take a builder and return it.
    settings: &'static [&'static str],
}

const PUBLIC: [Public; 3] = [
    Public {
        of: "purgatory",
        types: &[
            "BoxedOperation",
            "Builder",
            "CancelReason",
            "InEpoch",
            "Lease",
            "Monitor",
            "OperationId",
            "Outcome",
            "Parked",
            "Permit",
            "Permits",
            "Purgatory",
            "ReachResult",
            "Reason",
            "Refused",
            "ReplicaSets",
            "Replies",
            "ReplyScope",
            "ReplyStream",
            "Rule",
            "Snapshot",
            "Stats",
            "Timeout",
            "Times",
            "WaitError",
            "WaitFuture",
            "Watches",
            "Waits",
            "Watermarks",
        ],
        traits: &[
            "DelayedOperation",
            "IntoAnswer",
            "IntoWatches",
            "KeyRef",
            "ToKey",
            "WatchKey",
            "WatermarkValue",
        ],
        settings: &[
            "Builder::callbacks_on_executor",
            "Builder::check_at_expiry",
            "Builder::executor",
            "Builder::keys_max",
            "Builder::limit",
            "Builder::max_parked",
            "Builder::recheck_every",
            "Builder::shards",
            "Builder::timer",
            "ReplyStream::until",
        ],
    },
    Public {
        of: "timer-core",
        types: &[
            "Advanced",
            "BuildError",
            "DelayQueue",
            "DueTask",
            "Expired",
            "Interval",
            "Job",
            "ManualTimer",
            "Moment",
            "OutOfBounds",
            "Periodic",
            "ScheduleError",
            "Scheduled",
            "Sleep",
            "SystemClock",
            "SystemTimer",
            "SystemTimerBuilder",
            "TaskId",
            "TaskTimer",
            "TickLength",
            "TimeHistogram",
            "Timer",
            "TimerError",
            "TimerHandle",
            "TimerLeft",
            "TimerStats",
            "TimingWheel",
            "WheelSize",
            "Workers",
        ],
        traits: &["Clock", "Executor", "TimerTask"],
        settings: &[
            "DelayQueue::grace",
            "SystemTimerBuilder::clock",
            "SystemTimerBuilder::executor",
            "SystemTimerBuilder::grace",
            "SystemTimerBuilder::inline",
            "SystemTimerBuilder::name",
            "SystemTimerBuilder::on_panic",
            "SystemTimerBuilder::shards",
            "SystemTimerBuilder::tick",
            "SystemTimerBuilder::tokio",
            "SystemTimerBuilder::wheel_size",
            "SystemTimerBuilder::workers",
        ],
    },
    Public {
        of: "purgatory-live",
        types: &["Live", "Server"],
        traits: &[],
        settings: &[
            "Live::limit",
            "Live::purgatory_with",
            "Live::replica_sets_with",
            "Live::timer",
            "Live::waits_with",
        ],
    },
];

#[test]
fn public_names_are_those_listed() {
    let mut wrong = Vec::new();
    for listed in PUBLIC {
        let found = Found::in_crate(listed.of);
        let kinds = [
            ("type", listed.types, found.types),
            ("trait", listed.traits, found.traits),
            ("setting", listed.settings, found.settings),
        ];
        for (kind, names, found) in kinds {
            let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
            for name in found.difference(&names) {
                wrong.push(format!("{}: the {kind} {name} is not listed", listed.of));
            }
            for name in names.difference(&found) {
                wrong.push(format!("{}: there is no {kind} {name}", listed.of));
            }
        }
    }
    none(wrong);
}

/// A reader of the rendered docs can follow each type of a signature.
#[test]
fn public_signatures_name_no_hidden_type() {
    let mut wrong = Vec::new();
    for listed in PUBLIC {
        let exported = exported(listed.of);
        let mut files = Vec::new();
        for (name, text) in sources(listed.of) {
            let file = parse(&name, &text);
            files.push((name, file));
        }
        let mut names = HiddenNames::default();
        for (_, file) in &files {
            names.hidden.extend(hidden_types(file, &exported));
        }
        for (name, file) in &files {
            names.found.clear();
            names.visit_file(file);
            wrong.extend(names.found.iter().map(|found| format!("{name}: {found}")));
        }
    }
    none(wrong);
}

/// The public signatures that name a hidden type.
#[derive(Default)]
struct HiddenNames {
    hidden: BTreeSet<String>,
    /// The item whose signature is visited, if it is public.
    signature: Option<String>,
    found: BTreeSet<String>,
}

impl HiddenNames {
    fn visit_public(&mut self, vis: &Visibility, attributes: &[Attribute], of: &Signature) {
        if matches!(vis, Visibility::Public(_)) && !is_hidden(attributes) {
            self.signature = Some(of.ident.to_string());
            self.visit_signature(of);
            self.signature = None;
        }
    }
}

impl<'ast> Visit<'ast> for HiddenNames {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.visit_public(&function.vis, &function.attrs, &function.sig);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.visit_public(&function.vis, &function.attrs, &function.sig);
    }

    /// A conversion from a hidden type is rendered, too.
    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if let Some((of, _)) = &block.trait_ {
            self.signature = Some("an impl of a trait".to_owned());
            self.visit_path(of);
            self.signature = None;
        }
        for item in &block.items {
            self.visit_impl_item(item);
        }
    }

    fn visit_ident(&mut self, name: &'ast Ident) {
        let Some(signature) = &self.signature else {
            return;
        };
        if self.hidden.contains(&name.to_string()) {
            self.found
                .insert(format!("{signature} names {name}, which is hidden"));
        }
    }
}

/// The exported structs, enums and traits of a file that the docs leave out.
fn hidden_types(file: &File, exported: &BTreeSet<String>) -> BTreeSet<String> {
    let mut hidden = BTreeSet::new();
    for item in &file.items {
        let (name, attributes) = match item {
            Item::Struct(item) => (item.ident.to_string(), &item.attrs),
            Item::Enum(item) => (item.ident.to_string(), &item.attrs),
            Item::Trait(item) => (item.ident.to_string(), &item.attrs),
            _ => continue,
        };
        if exported.contains(&name) && is_hidden(attributes) {
            hidden.insert(name);
        }
    }
    hidden
}

#[derive(Default)]
struct Found {
    types: BTreeSet<String>,
    traits: BTreeSet<String>,
    settings: BTreeSet<String>,
}

impl Found {
    fn in_crate(of: &str) -> Found {
        let exported = exported(of);
        let mut found = Found::default();
        for (name, text) in sources(of) {
            for item in parse(&name, &text).items {
                found.add(item, &exported);
            }
        }
        found
    }

    fn add(&mut self, item: Item, exported: &BTreeSet<String>) {
        // A type or trait counts when it is exported and documented.
        let is_public = |name: &str, vis: &Visibility, attributes: &[Attribute]| {
            let is_open = matches!(vis, Visibility::Public(_));
            is_open && exported.contains(name) && !is_hidden(attributes)
        };
        match item {
            Item::Struct(item) if is_public(&item.ident.to_string(), &item.vis, &item.attrs) => {
                self.types.insert(item.ident.to_string());
            }
            Item::Enum(item) if is_public(&item.ident.to_string(), &item.vis, &item.attrs) => {
                self.types.insert(item.ident.to_string());
            }
            Item::Trait(item) if is_public(&item.ident.to_string(), &item.vis, &item.attrs) => {
                self.traits.insert(item.ident.to_string());
            }
            // Settings stand in the blocks of their builder.
            Item::Impl(block) => {
                let Some(builder) = name_of(&block.self_ty) else {
                    return;
                };
                for method in block.items {
                    self.settings.extend(setting(&builder, &method));
                }
            }
            _ => {}
        }
    }
}

/// The name of a public method that takes `mut self` and returns it, behind its type's name.
fn setting(builder: &str, method: &ImplItem) -> Option<String> {
    // The parts of the signature that matter.
    let ImplItem::Fn(method) = method else {
        return None;
    };
    let Some(FnArg::Receiver(receiver)) = method.sig.inputs.first() else {
        return None;
    };
    let ReturnType::Type(_, result) = &method.sig.output else {
        return None;
    };
    // From itself to itself.
    let result = name_of(result)?;
    let is_public = matches!(method.vis, Visibility::Public(_));
    let takes = matches!(receiver.kind, ReceiverKind::Value) && receiver.mutability.is_some();
    let returns = result == "Self" || result == builder;
    if is_public && takes && returns {
        Some(format!("{builder}::{}", method.sig.ident))
    } else {
        None
    }
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    let is_hidden = |attribute: &Attribute| {
        let arguments = attribute.meta.require_list();
        attribute.path().is_ident("doc")
            && arguments.is_ok_and(|list| list.tokens.to_string() == "hidden")
    };
    attributes.iter().any(is_hidden)
}

fn name_of(item: &Type) -> Option<String> {
    let Type::Path(path) = item else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

/// The names that the crate's root exports by `pub use`.
fn exported(of: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let root = parse("lib.rs", &text(&format!("crates/{of}/src/lib.rs")));
    for item in root.items {
        if let Item::Use(item) = item
            && matches!(item.vis, Visibility::Public(_))
        {
            add_names(&item.tree, &mut names);
        }
    }
    names
}

fn add_names(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => add_names(&path.tree, names),
        UseTree::Name(name) => {
            names.insert(name.ident.to_string());
        }
        UseTree::Rename(name) => {
            names.insert(name.rename.to_string());
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                add_names(tree, names);
            }
        }
        UseTree::Glob(_) => {}
    }
}
