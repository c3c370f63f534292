//! The calls between functions, as far as syntax tells: a table of all functions, and the type of a
//! call's receiver from parameters, fields and results.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use syn::{
    Block, Expr, ExprClosure, ExprField, ExprLet, ExprMethodCall, ExprPath, FnArg, GenericArgument,
    ImplItem, Item, ItemImpl, ItemStruct, ItemTrait, Local, Macro, Member, Pat, PathArguments,
    ReturnType, Signature, TraitItem, Type, UseTree, spanned::Spanned, visit::Visit,
};

use crate::syntax::{is_for_tests, line, macro_arguments, parse};

/// Types that are called as what is inside of them.
const TRANSPARENT: [&str; 7] = [
    "Arc",
    "Box",
    "MutexGuard",
    "Pin",
    "Ref",
    "RefMut",
    "ShardGuard",
];

/// Types that yield what is inside by one of `YIELD`.
const CONTAINERS: [&str; 6] = ["Mutex", "Option", "RefCell", "Result", "RwLock", "Shards"];
const YIELD: [&str; 9] = [
    "as_deref_mut",
    "as_mut",
    "as_ref",
    "borrow_mut",
    "expect",
    "lock",
    "take",
    "unwrap",
    "unwrap_or_default",
];

/// Methods of std whose names some type of ours has, too. With a receiver of unknown type they are
/// std's.
const OF_STD: [&str; 24] = [
    "all", "append", "clear", "drain", "drop", "find", "first", "get", "get_mut", "insert",
    "is_empty", "iter", "iter_mut", "last", "len", "lock", "max", "new", "next", "pop", "push",
    "remove", "retain", "take",
];

/// A call from one function to another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    pub(super) from: String,
    pub(super) line: usize,
    pub(super) caller: String,
    pub(super) to: String,
    pub(super) callee: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.rs:{}: `{}` calls `{}` in {}",
            self.from, self.line, self.caller, self.callee, self.to
        )
    }
}

/// The calls of some files.
pub(super) struct Calls(pub(super) BTreeSet<Call>);

impl Calls {
    /// The calls in and between these files, given as name and text.
    pub(super) fn between(files: &[(String, String)]) -> Calls {
        // First all functions, since a call may name one of a later file.
        let mut table = Table::default();
        let mut read = Vec::new();
        for (file, text) in files {
            let mut code = Code::default();
            for item in parse(file, text).items {
                table.add(file, item, &mut code);
            }
            read.push((file, code));
        }
        // Then the calls in their bodies.
        let mut calls = BTreeSet::new();
        for (file, code) in &read {
            for function in &code.functions {
                let mut body = Body {
                    table: &table,
                    file,
                    imports: &code.imports,
                    function,
                    types: BTreeMap::new(),
                    calls: &mut calls,
                };
                body.enter();
            }
        }
        Calls(calls)
    }

    /// Keeps the calls from file to file in one folder.
    pub(super) fn inside(mut self, folder: &str) -> Calls {
        let is_inside = |file: &str| file.split('/').next() == Some(folder);
        self.0
            .retain(|call| call.from != call.to && is_inside(&call.from) && is_inside(&call.to));
        self
    }

    /// Whether a function of the first name calls one of the second, which may have its type before
    /// it.
    pub(super) fn has(&self, caller: &str, callee: &str) -> bool {
        let is_callee =
            |call: &Call| call.callee == callee || call.callee.rsplit("::").next() == Some(callee);
        let caller = caller.rsplit("::").next();
        self.0
            .iter()
            .any(|call| Some(call.caller.as_str()) == caller && is_callee(call))
    }

    /// The files that each file calls.
    pub(super) fn files(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for call in &self.0 {
            let targets = files.entry(call.from.clone()).or_default();
            targets.insert(call.to.clone());
        }
        files
    }
}

/// A type by its last name, and the last of its type arguments.
#[derive(Clone, Debug, PartialEq)]
struct Named {
    name: String,
    argument: Option<Box<Named>>,
}

impl Named {
    fn plain(name: &str) -> Named {
        Named {
            name: name.to_owned(),
            argument: None,
        }
    }

    /// The name of a type as it is written; `owner` is what `Self` stands for.
    fn of(written: &Type, owner: Option<&str>) -> Option<Named> {
        // References are called as what they refer to.
        let path = match written {
            Type::Reference(reference) => return Named::of(&reference.elem, owner),
            Type::Paren(inner) => return Named::of(&inner.elem, owner),
            Type::Path(path) => path,
            _ => return None,
        };
        let last = path.path.segments.last()?;
        let name = last.ident.to_string();
        if name == "Self" {
            return owner.map(Named::plain);
        }
        // The last type in angle brackets: a guard's lifetime and a map's key come before it.
        let mut argument = None;
        if let PathArguments::AngleBracketed(list) = &last.arguments {
            for inner in &list.args {
                if let GenericArgument::Type(inner) = inner {
                    argument = Named::of(inner, owner).map(Box::new);
                }
            }
        }
        Some(Named { name, argument })
    }

    /// The type inside a container, or the type itself.
    fn inside(self) -> Option<Named> {
        if CONTAINERS.contains(&self.name.as_str()) {
            self.argument.map(|inner| *inner)
        } else {
            Some(self)
        }
    }
}

struct Function {
    owner: Option<String>,
    signature: Signature,
    body: Block,
}

struct Method {
    file: String,
    result: Option<Named>,
    /// It implements a trait, so its name says nothing of its type.
    of_trait: bool,
}

/// The parts of one file that are in no table.
#[derive(Default)]
struct Code {
    imports: Imports,
    functions: Vec<Function>,
}

/// The target of a `use`: the module or type before the name, and the name there.
type Imports = BTreeMap<String, (String, String)>;

/// All functions, by type and name; fields and aliases, by which a receiver's type is found.
#[derive(Default)]
struct Table {
    methods: BTreeMap<(String, String), Method>,
    /// The files that have a function of this name outside of any type.
    free: BTreeMap<String, BTreeSet<String>>,
    fields: BTreeMap<(String, String), Named>,
    aliases: BTreeMap<String, Named>,
}

impl Table {
    /// Adds an item of a file, and to `code` its functions and imports.
    fn add(&mut self, file: &str, item: Item, code: &mut Code) {
        match item {
            // Functions: free ones, and those of a type or a trait.
            Item::Fn(item) if !is_for_tests(&item.attrs) => {
                let files = self.free.entry(item.sig.ident.to_string()).or_default();
                files.insert(file.to_owned());
                code.functions.push(Function {
                    owner: None,
                    signature: item.sig,
                    body: *item.block,
                });
            }
            Item::Impl(block) if !is_for_tests(&block.attrs) => self.add_impl(file, block, code),
            Item::Trait(item) => self.add_trait(file, item, code),
            // Names by which a receiver's type is found.
            Item::Struct(item) => self.add_fields(&item),
            Item::Type(item) => {
                if let Some(named) = Named::of(&item.ty, None) {
                    self.aliases.insert(item.ident.to_string(), named);
                }
            }
            // A module inside the file is a part of it.
            Item::Mod(module) if !is_for_tests(&module.attrs) => {
                if let Some((_, items)) = module.content {
                    for item in items {
                        self.add(file, item, code);
                    }
                }
            }
            Item::Use(item) => add_imports(&item.tree, "", &mut code.imports),
            _ => {}
        }
    }

    fn add_impl(&mut self, file: &str, block: ItemImpl, code: &mut Code) {
        let Some(owner) = Named::of(&block.self_ty, None) else {
            return;
        };
        // The signature goes into the table, the body waits until the table is whole.
        let of_trait = block.trait_.is_some();
        for item in block.items {
            if let ImplItem::Fn(method) = item
                && !is_for_tests(&method.attrs)
            {
                self.add_method(file, &owner.name, &method.sig, of_trait);
                code.functions.push(Function {
                    owner: Some(owner.name.clone()),
                    signature: method.sig,
                    body: method.block,
                });
            }
        }
    }

    /// Adds the methods that have a body in the trait itself.
    fn add_trait(&mut self, file: &str, item: ItemTrait, code: &mut Code) {
        let owner = item.ident.to_string();
        for item in item.items {
            if let TraitItem::Fn(method) = item
                && let Some(body) = method.default
            {
                self.add_method(file, &owner, &method.sig, true);
                code.functions.push(Function {
                    owner: Some(owner.clone()),
                    signature: method.sig,
                    body,
                });
            }
        }
    }

    fn add_fields(&mut self, item: &ItemStruct) {
        let owner = item.ident.to_string();
        for (at, field) in item.fields.iter().enumerate() {
            let name = match &field.ident {
                Some(name) => name.to_string(),
                None => at.to_string(),
            };
            if let Some(named) = Named::of(&field.ty, Some(&owner)) {
                self.fields.insert((owner.clone(), name), named);
            }
        }
    }

    fn add_method(&mut self, file: &str, owner: &str, signature: &Signature, of_trait: bool) {
        let result = match &signature.output {
            ReturnType::Type(_, written) => Named::of(written, Some(owner)),
            ReturnType::Default => None,
        };
        let method = Method {
            file: file.to_owned(),
            result,
            of_trait,
        };
        let key = (owner.to_owned(), signature.ident.to_string());
        // An inherent method goes before a trait's of the same name.
        if !of_trait || !self.methods.contains_key(&key) {
            self.methods.insert(key, method);
        }
    }

    /// A type as it is called: without aliases, references and smart pointers.
    fn called(&self, mut named: Named) -> Named {
        loop {
            if let Some(meant) = self.aliases.get(&named.name) {
                named = meant.clone();
            } else if TRANSPARENT.contains(&named.name.as_str())
                && let Some(inner) = named.argument
            {
                named = *inner;
            } else {
                return named;
            }
        }
    }

    fn method(&self, owner: &str, name: &str) -> Option<&Method> {
        self.methods.get(&(owner.to_owned(), name.to_owned()))
    }

    /// The type and file of a method whose name only one type has.
    fn only_method(&self, name: &str) -> Option<(&str, &Method)> {
        if OF_STD.contains(&name) {
            return None;
        }
        let mut found = self
            .methods
            .iter()
            .filter(|((_, method), _)| method == name);
        match (found.next(), found.next()) {
            (Some(((owner, _), method)), None) if !method.of_trait => Some((owner, method)),
            _ => None,
        }
    }
}

/// Adds the names of a `use`, of which `module` stands before `tree`.
fn add_imports(tree: &UseTree, module: &str, imports: &mut Imports) {
    match tree {
        // A name, or one with another name here.
        UseTree::Path(path) => add_imports(&path.tree, &path.ident.to_string(), imports),
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            imports.insert(name.clone(), (module.to_owned(), name));
        }
        UseTree::Rename(name) => {
            let target = (module.to_owned(), name.ident.to_string());
            imports.insert(name.rename.to_string(), target);
        }
        // Each name in braces stands behind the same module.
        UseTree::Group(group) => {
            for tree in &group.items {
                add_imports(tree, module, imports);
            }
        }
        UseTree::Glob(_) => {}
    }
}

/// A function's body, while its calls are noted.
struct Body<'a> {
    table: &'a Table,
    file: &'a str,
    imports: &'a Imports,
    function: &'a Function,
    /// The names in scope, with their types where these are known.
    types: BTreeMap<String, Option<Named>>,
    calls: &'a mut BTreeSet<Call>,
}

impl Body<'_> {
    fn enter(&mut self) {
        let function = self.function;
        let owner = function.owner.as_deref();
        for parameter in &function.signature.inputs {
            match parameter {
                FnArg::Receiver(_) => {
                    self.types
                        .insert("self".to_owned(), owner.map(Named::plain));
                }
                FnArg::Typed(typed) => self.bind(&typed.pat, Named::of(&typed.ty, owner)),
            }
        }
        self.visit_block(&function.body);
    }

    /// Notes the names that a pattern binds, and the type of the whole where it binds one name.
    fn bind(&mut self, pattern: &Pat, named: Option<Named>) {
        match pattern {
            // One name, with a type or inside a variant such as `Some`.
            Pat::Ident(ident) => {
                self.types.insert(ident.ident.to_string(), named);
            }
            Pat::Type(typed) => {
                let owner = self.function.owner.as_deref();
                self.bind(&typed.pat, Named::of(&typed.ty, owner));
            }
            Pat::TupleStruct(variant) if variant.elems.len() == 1 => {
                let inner = named.and_then(Named::inside);
                self.bind(&variant.elems[0], inner);
            }
            _ => self.visit_pat(pattern),
        }
    }

    fn called(&self, expression: &Expr) -> Option<Named> {
        let named = self.type_of(expression)?;
        Some(self.table.called(named))
    }

    /// The type of an expression, as far as it can be told.
    fn type_of(&self, expression: &Expr) -> Option<Named> {
        match expression {
            // A name in scope, and signs around an expression.
            Expr::Path(path) => self.types.get(&path.path.get_ident()?.to_string())?.clone(),
            Expr::Paren(inner) => self.type_of(&inner.expr),
            Expr::Reference(reference) => self.type_of(&reference.expr),
            Expr::Unary(unary) => self.type_of(&unary.expr),
            Expr::Try(tried) => self.type_of(&tried.expr)?.inside(),
            // A field, and results.
            Expr::Field(field) => self.type_of_field(field),
            Expr::MethodCall(call) => {
                let owner = self.called(&call.receiver)?;
                let name = call.method.to_string();
                if name == "clone" {
                    Some(owner)
                } else if YIELD.contains(&name.as_str()) {
                    owner.inside()
                } else {
                    self.table.method(&owner.name, &name)?.result.clone()
                }
            }
            Expr::Struct(made) => {
                let name = made.path.segments.last()?.ident.to_string();
                Some(Named::plain(self.owner_named(&name)?))
            }
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else {
                    return None;
                };
                let (owner, name) = last_two(path)?;
                self.table
                    .method(self.owner_named(&owner)?, &name)?
                    .result
                    .clone()
            }
            _ => None,
        }
    }

    fn type_of_field(&self, field: &ExprField) -> Option<Named> {
        let owner = self.called(&field.base)?;
        let name = match &field.member {
            Member::Named(name) => name.to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        };
        self.table.fields.get(&(owner.name, name)).cloned()
    }

    /// The type that a name stands for here.
    fn owner_named<'n>(&'n self, name: &'n str) -> Option<&'n str> {
        if name == "Self" {
            self.function.owner.as_deref()
        } else {
            Some(name)
        }
    }

    fn tell(&mut self, line: usize, to: &str, callee: String) {
        self.calls.insert(Call {
            from: self.file.to_owned(),
            line,
            caller: self.function.signature.ident.to_string(),
            to: to.to_owned(),
            callee,
        });
    }

    /// The file that a path to a function leads to, if there is one.
    fn file_of(&self, path: &ExprPath) -> Option<String> {
        let name = path.path.segments.last()?.ident.to_string();
        // A method by its type; else the module and name of a free function.
        let (module, name) = match last_two(path) {
            Some((owner, name)) => {
                let owner = self.owner_named(&owner)?;
                if let Some(method) = self.table.method(owner, &name) {
                    return Some(method.file.clone());
                }
                (owner.to_owned(), name)
            }
            None if self.types.contains_key(&name) => return None,
            None => match self.imports.get(&name) {
                Some(import) => import.clone(),
                None => (self.file.to_owned(), name),
            },
        };
        let in_module = |file: &&String| file.trim_end_matches("/mod").ends_with(&module);
        let files = self.table.free.get(&name)?;
        files.iter().find(in_module).cloned()
    }
}

/// The name before a path's last, and the last.
fn last_two(path: &ExprPath) -> Option<(String, String)> {
    let mut names = path.path.segments.iter().rev();
    let name = names.next()?.ident.to_string();
    let owner = names.next()?.ident.to_string();
    Some((owner, name))
}

impl<'ast> Visit<'ast> for Body<'_> {
    fn visit_local(&mut self, local: &'ast Local) {
        syn::visit::visit_local(self, local);
        let named = local
            .init
            .as_ref()
            .and_then(|init| self.type_of(&init.expr));
        self.bind(&local.pat, named);
    }

    fn visit_expr_let(&mut self, matched: &'ast ExprLet) {
        syn::visit::visit_expr_let(self, matched);
        let named = self.type_of(&matched.expr);
        self.bind(&matched.pat, named);
    }

    fn visit_pat_ident(&mut self, ident: &'ast syn::PatIdent) {
        self.types.insert(ident.ident.to_string(), None);
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        for pattern in &closure.inputs {
            self.bind(pattern, None);
        }
        self.visit_expr(&closure.body);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        syn::visit::visit_expr_method_call(self, call);
        // By the receiver's type; where that is unknown, by the name, if only one type has it.
        let name = call.method.to_string();
        let table = self.table;
        let found = match self.called(&call.receiver) {
            Some(owner) => table
                .method(&owner.name, &name)
                .map(|method| (owner.name, method)),
            None => table
                .only_method(&name)
                .map(|(owner, method)| (owner.to_owned(), method)),
        };
        if let Some((owner, method)) = found {
            let at = line(call.method.span());
            self.tell(at, &method.file, format!("{owner}::{name}"));
        }
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        let Some(file) = self.file_of(path) else {
            return;
        };
        let mut callee = Vec::new();
        for segment in &path.path.segments {
            callee.push(segment.ident.to_string());
        }
        let at = line(path.span());
        self.tell(at, &file, callee.join("::"));
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        for statement in macro_arguments(&call.tokens) {
            self.visit_stmt(&statement);
        }
    }
}
