//! Folded code, which saves a line and costs its reader a minute: side effects by iterator, tuples
//! of unrelated values, `then` where an `if` is expected, loops without an end in sight, parameter
//! lists that take apart; and functions that do not say their steps. Clippy denies what it knows of
//! this (`[workspace.lints]`); the rest is found here by syntax, in code that ships, examples (in
//! documentation, too: users copy them), benches and these tests.

use proc_macro2::Span;
use syn::{
    Block, Expr, ExprAssign, ExprCall, ExprField, ExprForLoop, ExprMethodCall, FnArg, ImplItemFn,
    ItemFn, ItemImpl, ItemMod, Local, Macro, Pat, RangeLimits, Signature, Stmt, Token, TraitItemFn,
    punctuated::Punctuated, spanned::Spanned, visit::Visit,
};

use crate::{
    examples::{Example, examples},
    pending::{FOLDED, split},
    syntax::{is_for_tests, line, lines, macro_arguments, parse},
    tree::{files, is_code, is_test, none, sources},
};

/// A function with more lines of code in its body says its steps in comments.
const SILENT_LINES: usize = 15;

/// With fewer statements there are no steps to say.
const STEPS_MIN: usize = 3;

/// Closures that are handed to a call: longer ones are counted, and judged by a reader.
const CLOSURE_LINES: usize = 3;

/// Adapters whose result is the point of the call. As a statement only their effect is.
const ADAPTERS: [&str; 13] = [
    "all",
    "and_then",
    "any",
    "filter",
    "filter_map",
    "inspect",
    "is_none_or",
    "is_some_and",
    "map",
    "map_err",
    "map_or",
    "then",
    "then_some",
];

/// True for a closure of several parameters, which no iterator's method takes: `for_each` is then
/// that of a purgatory.
fn takes_several(arguments: &Punctuated<Expr, Token![,]>) -> bool {
    matches!(arguments.first(), Some(Expr::Closure(closure)) if closure.inputs.len() > 1)
}

#[test]
fn no_code_is_folded() {
    let mut wrong = Vec::new();
    let mut closures = 0;
    for (path, text) in shipped_code() {
        let found = Folds::in_file(&path, &text);
        closures += found.long_closures;
        wrong.extend(found.wrong);
    }
    for (path, example) in examples() {
        match example {
            Example::Code(text) => wrong.extend(Folds::in_example(&path, &text).wrong),
            Example::NotRust(line) => wrong.push(format!("{path}:{line}: no Rust by its syntax")),
        }
    }
    println!("closures of more than {CLOSURE_LINES} lines inside a call: {closures}");
    none(split("folds", FOLDED, wrong));
}

/// Libraries without their tests, programs of `examples`, benches and this package.
fn shipped_code() -> Vec<(String, String)> {
    let mut code = Vec::new();
    for of in ["timer-core", "purgatory", "purgatory-live"] {
        for (name, text) in sources(of) {
            code.push((format!("crates/{of}/src/{name}.rs"), text));
        }
    }
    for (path, text) in files(".rs") {
        let folder = ["benches/", "examples/", "house/"]
            .iter()
            .any(|folder| path.starts_with(folder));
        // The recipes are what users copy, too.
        let recipe = path.starts_with("crates/purgatory/src/guide/");
        if (folder || recipe) && !is_test(&path) {
            code.push((path, text));
        }
    }
    code
}

/// The findings in one file.
struct Folds<'a> {
    path: &'a str,
    lines: Vec<&'a str>,
    wrong: Vec<String>,
    long_closures: usize,
    /// Long functions say their steps. In documentation the prose around an example does.
    steps: bool,
}

impl<'a> Folds<'a> {
    fn in_file(path: &'a str, text: &'a str) -> Folds<'a> {
        let mut folds = Folds {
            path,
            lines: text.lines().collect(),
            wrong: Vec::new(),
            long_closures: 0,
            steps: true,
        };
        folds.visit_file(&parse(path, text));
        folds
    }

    fn in_example(path: &'a str, text: &'a str) -> Folds<'a> {
        let mut folds = Folds {
            path,
            lines: Vec::new(),
            wrong: Vec::new(),
            long_closures: 0,
            steps: false,
        };
        folds.visit_file(&parse(path, text));
        folds
    }

    fn tell(&mut self, span: Span, what: &str) {
        self.wrong
            .push(format!("{}:{}: {what}", self.path, line(span)));
    }

    fn function(&mut self, signature: &Signature, body: &Block) {
        // The parameter list.
        for parameter in &signature.inputs {
            let taken_apart = matches!(parameter, FnArg::Typed(typed)
                if matches!(*typed.pat, Pat::Struct(_) | Pat::Tuple(_)));
            if taken_apart {
                self.tell(
                    signature.ident.span(),
                    "a parameter is taken apart in the list",
                );
            }
        }
        // The steps of the body.
        let mut steps = Steps(0);
        steps.visit_block(body);
        let length = self.silent_lines(body);
        if self.steps && length > SILENT_LINES && steps.0 >= STEPS_MIN {
            let what = format!("{length} lines of code, and no comment says their steps");
            self.tell(signature.ident.span(), &what);
        }
    }

    /// Lines of code of a body that has no comment inside, or 0.
    fn silent_lines(&self, body: &Block) -> usize {
        let braces = body.brace_token.span;
        let inside = line(braces.open())..line(braces.close()).saturating_sub(1);
        let inside = self.lines.get(inside).unwrap_or_default();
        if inside.iter().any(|line| has_comment(line)) {
            return 0;
        }
        inside.iter().filter(|line| is_code(line)).count()
    }

    fn statement(&mut self, statement: &Stmt) {
        let thrown_away = match statement {
            Stmt::Expr(expression, Some(_)) => expression,
            Stmt::Local(Local {
                pat: Pat::Wild(_),
                init: Some(init),
                ..
            }) => &init.expr,
            _ => return,
        };
        if let Expr::MethodCall(call) = thrown_away {
            let method = call.method.to_string();
            if ADAPTERS.contains(&method.as_str()) {
                self.tell(call.method.span(), &format!(".{method}( for its effect"));
            }
        }
    }

    fn count_closures(&mut self, arguments: &Punctuated<Expr, Token![,]>) {
        for argument in arguments {
            if let Expr::Closure(closure) = argument
                && lines(&closure.body) > CLOSURE_LINES
            {
                self.long_closures += 1;
            }
        }
    }
}

impl<'ast> Visit<'ast> for Folds<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_for_tests(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if !is_for_tests(&block.attrs) {
            syn::visit::visit_item_impl(self, block);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !is_for_tests(&function.attrs) {
            self.function(&function.sig, &function.block);
            syn::visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.function(&function.sig, &function.block);
            syn::visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.function(&function.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        self.statement(statement);
        syn::visit::visit_stmt(self, statement);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let init = local.init.as_ref();
        // One that may fail matches several values at once.
        let plain = init.filter(|init| init.diverge.is_none());
        if let Some(init) = plain
            && is_list_pattern(&local.pat)
            && is_list(&init.expr)
        {
            self.tell(local.let_token.span, "a tuple `let` of several values");
        }
        syn::visit::visit_local(self, local);
    }

    fn visit_expr_assign(&mut self, assign: &'ast ExprAssign) {
        if let (Expr::Tuple(places), Expr::Tuple(values)) = (&*assign.left, &*assign.right) {
            // A swap, or a value that moves on: `(previous, current) = (current, next)`.
            let moves = places
                .elems
                .iter()
                .any(|place| values.elems.iter().any(|value| value == place));
            if !moves {
                self.tell(assign.eq_token.span, "a tuple assignment");
            }
        }
        syn::visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_field(&mut self, field: &'ast ExprField) {
        if is_list(&field.base) {
            self.tell(field.dot_token.span, "a tuple made for one of its fields");
        }
        syn::visit::visit_expr_field(self, field);
    }

    fn visit_expr_for_loop(&mut self, each: &'ast ExprForLoop) {
        let endless = matches!(&*each.expr, Expr::Range(range)
            if range.end.is_none() && matches!(range.limits, RangeLimits::HalfOpen(_)));
        if endless {
            self.tell(each.for_token.span, "`for` over a range without an end");
        }
        syn::visit::visit_expr_for_loop(self, each);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let method = call.method.to_string();
        let is_iteration = method == "for_each" || method == "try_for_each";
        if is_iteration && !takes_several(&call.args) {
            self.tell(call.method.span(), &format!(".{method}("));
        }
        if is_then(&call.receiver) {
            let what = format!(".{method}( of a `then`, where an `if` is expected");
            self.tell(call.method.span(), &what);
        }
        if method == "extend" && call.args.iter().any(is_then) {
            self.tell(call.method.span(), ".extend( of a `then`");
        }
        self.count_closures(&call.args);
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let is_drop = matches!(&*call.func, Expr::Path(path) if path.path.is_ident("drop"));
        if is_drop && call.args.iter().any(is_then) {
            self.tell(call.func.span(), "drop( of a `then`");
        }
        self.count_closures(&call.args);
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        for statement in macro_arguments(&call.tokens) {
            self.visit_stmt(&statement);
        }
    }
}

/// Counts statements, nested ones too.
struct Steps(usize);

impl<'ast> Visit<'ast> for Steps {
    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        self.0 += 1;
        syn::visit::visit_stmt(self, statement);
    }
}

/// Whether a comment stands on the line, by itself or behind code. One that documents an item does
/// not count.
fn has_comment(line: &str) -> bool {
    let text = line.trim_start();
    let documents = text.starts_with("///") || text.starts_with("//!");
    text.starts_with("//") && !documents || line.contains(" // ")
}

fn is_then(expression: &Expr) -> bool {
    matches!(expression, Expr::MethodCall(call)
        if call.method == "then" || call.method == "then_some")
}

/// A tuple or an array, written out.
fn is_list(expression: &Expr) -> bool {
    match expression {
        Expr::Paren(inner) => is_list(&inner.expr),
        Expr::Tuple(_) | Expr::Array(_) => true,
        _ => false,
    }
}

fn is_list_pattern(pattern: &Pat) -> bool {
    match pattern {
        Pat::Type(typed) => is_list_pattern(&typed.pat),
        Pat::Tuple(_) | Pat::Slice(_) => true,
        _ => false,
    }
}

#[track_caller]
fn told(code: &str) -> Vec<String> {
    let text = format!("fn f() {{\n{code}\n}}");
    Folds::in_file("f", &text).wrong
}

#[test]
fn each_fold_is_told() {
    for code in [
        "list.iter().for_each(drop);",
        "if a { held.map(|held| release(held)); }",
        "let _ = held.and_then(release);",
        "(a > b).then(f);",
        "found.extend((a > b).then_some(c));",
        "drop((a > b).then(f));",
        "let c = (a > b).then_some(c).unwrap_or(d);",
        "let (a, mut b) = (c, d);",
        "let [a, b]: [u8; 2] = [c, d];",
        "(a, b) = (c, d);",
        "let a = (f(), true).1;",
        "for step in 0.. { f(step); }",
        "fn g((a, b): (u8, u8)) {}",
        "fn g(Held { payload, .. }: Held) {}",
        "assert!(list.iter().for_each(drop));",
    ] {
        assert_eq!(told(code).len(), 1, "{code}: {:?}", told(code));
    }
}

#[test]
fn what_a_reader_expects_is_not_told() {
    for code in [
        "for held in list { release(held); }",
        "let held = held.map(release);",
        "held.map(release)",
        "(a > b).then_some(c)",
        "let (a, b) = pair();",
        "let (Some(a), Some(b)) = (c, d) else { return };",
        "if let (Some(a), Some(b)) = (c, d) {}",
        "(a, b) = (b, a);",
        "(previous, current) = (current, next);",
        "let a = pair.1;",
        "for step in 0..9 { f(step); }",
        "waits.for_each(|id, keys, waiter| dump(id, keys, waiter));",
        "#[test] fn g() { list.iter().for_each(drop); }",
        "#[cfg(test)] mod tests { fn g() { list.iter().for_each(drop); } }",
        "#[cfg(all(test, unix))] fn g() { list.iter().for_each(drop); }",
    ] {
        assert_eq!(told(code), [""; 0], "{code}");
    }
}

#[test]
fn a_long_function_says_its_steps() {
    let steps = "f();\n".repeat(SILENT_LINES + 1);
    assert_eq!(told(&steps).len(), 1);
    for code in [
        "f();\n".repeat(SILENT_LINES),
        format!("// Calls.\n{steps}"),
        format!("{steps}f(); // once more"),
        // One statement over many lines has no steps.
        format!("f(\n{})", "g(),\n".repeat(SILENT_LINES)),
    ] {
        assert_eq!(told(&code), [""; 0], "{code}");
    }
}
