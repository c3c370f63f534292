# A menu, which `just` lists. Each recipe is one line. CI runs `.ci/run`.

# List the recipes.
default:
    @just --list

# The main job: producers with acks=all wait in the purgatory for their followers.
acks-all *ARGS:
    cargo run --release --example acks_all -- {{ARGS}}

# A small Kafka broker; point kcat at 127.0.0.1:9092.
broker *ARGS:
    cargo run --release --example broker -- {{ARGS}}

# Five clients in fourteen scenarios, compared with the table in docs/BROKER.md; `--help` tells more.
clients *ARGS:
    cargo build --release --example broker && examples/broker/clients/run.py target/release/examples/broker {{ARGS}}

# The broker as three processes: clients that do everything wrong, nodes stopped and killed; `--connections 5000` for many.
broker-attack *ARGS:
    cargo build --release --example broker && examples/broker/attack.py target/release/examples/broker {{ARGS}}

# The live page of acks_all in a headless Chromium; screenshots of it in a folder.
live-page *FOLDER:
    cargo build --release --example acks_all && crates/purgatory-live/check.sh target/release/examples/acks_all {{FOLDER}}

# The moving picture in the README, recorded again.
live-film:
    cargo build --release --example acks_all && crates/purgatory-live/film.sh target/release/examples/acks_all docs/charts/live-page.webp

# The ways to wait, a line each.
waiting:
    cargo run --release --example waiting
    cargo run --release --example local

# An HTTP long-poll gateway.
external-events *ARGS:
    cargo run --release -p external_events-example --example external_events -- {{ARGS}}

# While working: the tests of both crates, without the examples of the manual.
quick:
    cargo test --quiet -p timer-core -p purgatory --lib --tests

# Layers of imports, absences; links, names and figures of pages.
house:
    cargo test --quiet -p house && benches/tables.py --check

# All tests except loom's.
test:
    cargo test --workspace

# Every interleaving of the small cores, and the faults that must be noticed.
loom:
    bash -c '. .ci/stages && loom'

# A billion operations raced to one outcome each; can be stopped, and resumes where it was.
billion *OPERATIONS:
    .ci/billion/run {{OPERATIONS}}

# ThreadSanitizer over the tests with threads, on stable; its findings are in target/tsan/tests.log.
tsan *ARGS:
    .ci/tsan/run {{ARGS}}

# The wheel and the purgatory against their references for 20 million steps each.
model:
    TEST_EFFORT=4000 cargo test --release -p timer-core -p purgatory --test models -- --nocapture model::

# libFuzzer on wheel, purgatory or broker; needs a nightly and cargo-fuzz.
fuzz TARGET="wheel" SECONDS="60":
    cargo +nightly fuzz run {{TARGET}} -s none --features libfuzzer -- -max_total_time={{SECONDS}}

# Tasks by cron expressions, over a year or live.
recurring *ARGS:
    cargo run --release --example recurring -- {{ARGS}}

# How to test operations of your own.
virtual-time *ARGS:
    cargo run --release --example virtual_time -- {{ARGS}}

# Ten million operations racing while the clock jumps: none is lost, ended twice or early, and all memory is freed.
stress:
    TEST_EFFORT=100 cargo test --release -p purgatory --test races stress:: -- --nocapture

# Programs that do everything wrong, for ten minutes; all operations are accounted for.
attack:
    TEST_EFFORT=600 cargo test --release -p purgatory --all-features --test threads attack:: -- --nocapture

# Format, lints, docs.
lint:
    cargo fmt --check && cargo clippy --workspace --all-targets --all-features -- -D warnings && RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features

# Measures all figures again, or those of some records (`instructions`), and writes them into the pages; needs a quiet machine.
figures *NAMES:
    benches/tables.py measure {{NAMES}}

# Timers and waits beside the alternatives to them, in one run.
peers *ARGS:
    cargo run --release -p purgatory-benches --bin peers -- {{ARGS}}

# Instructions, atomics and cache misses of an operation, ours and hand-written; needs valgrind.
instructions *ARGS:
    benches/instructions.py {{ARGS}}

# Timer algorithms from a plain list to the wheel, as the pending timers grow.
schemes *ARGS:
    cargo run --release -p purgatory-benches --bin schemes -- {{ARGS}}

# Lock holds of the commonest calls, and cache lines that move with 1 to 64 processors; needs valgrind.
lines *ARGS:
    benches/lines.py {{ARGS}}

# Kafka's load test, on this purgatory and on one built like Kafka's first.
perf *ARGS:
    cargo run --release -p purgatory-benches --bin purgatory_perf -- {{ARGS}}

# A program that does everything wrong at once, to see the alerts.
misbehave *ARGS:
    cargo run --release --example misbehave -- {{ARGS}}

# A real Prometheus scrapes the examples: books, alerts, dashboard.
prometheus:
    cargo build --release --example acks_all --example broker --example misbehave && docs/prometheus/check.sh target/release/examples/acks_all target/release/examples/broker

# The crates as crates.io would get them, under their names there, tested with all features and with none.
release-check:
    .ci/release test

# A user's project on those packages, with the newest and the oldest Rust; the documentation as docs.rs builds it.
release-rehearsal:
    .ci/release --dry-run

# Compares the public API with the baseline; installs cargo-semver-checks into target if it is missing.
semver:
    .ci/semver

# Mutants of one file or folder, and those that no test notices; needs cargo-mutants.
mutants FILES='crates/timer-core/src/wheel/*.rs' *ARGS:
    cargo mutants --iterate -f '{{FILES}}' {{ARGS}}

# The lines of both crates that no test runs; needs cargo-tarpaulin. Takes ten minutes.
coverage:
    cargo tarpaulin --engine ptrace -p timer-core -p purgatory --lib --tests --all-features --skip-clean --target-dir target/coverage --include-files 'crates/timer-core/src/*' --include-files 'crates/purgatory/src/*' --out Stdout

# Licences, sources, bans; installs cargo-deny into target if it is missing.
deny:
    .ci/deny

# Everything CI runs for each change.
ci:
    .ci/run

# Long checks in full, with seeds from the date: the public API, licences, malformed frames, libFuzzer, Prometheus, a browser, benches, stress.
nightly:
    .ci/nightly
