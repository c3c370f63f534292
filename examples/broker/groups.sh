#!/usr/bin/env bash
# Real clients in consumer groups: groups.sh target/release/examples/broker
#
# Members of a group share a topic, one is killed and its partitions move, offsets are resumed;
# idempotent producers whose connections are cut leave each record once (groups.py). Every wait is
# bounded.
set -euo pipefail

broker=${1:?usage: groups.sh path/to/the/broker}
python_packages="confluent-kafka==2.16.1 kafka-python==3.0.12"
python_cache=${XDG_CACHE_HOME:-$HOME/.cache}/purgatory-broker-check
work=$(mktemp -d)
broker_pid=""

finish() {
    if [ -n "$broker_pid" ]; then kill -KILL "$broker_pid" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    tail -n 30 "$work"/* >&2 2>/dev/null || true
    exit 1
}

# wait_for WHAT COMMAND...: until the command succeeds, at most 10 seconds.
wait_for() {
    local what=$1
    shift
    for _ in $(seq 200); do
        if "$@"; then return; fi
        sleep 0.05
    done
    fail "no $what within 10 s"
}

not_running() { ! kill -0 "$1" 2>/dev/null; }

# With members that it starts; when it ends too late they end with it.
python_client() { PYTHONPATH=$python_cache timeout -k 1 90 python3 "$@"; }

# Into a folder of their own, kept for the next time.
install_python_clients() {
    local imports="import confluent_kafka, kafka"
    python_client -c "$imports" 2>/dev/null && return
    # shellcheck disable=SC2086 # several words
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --upgrade \
        --target "$python_cache" $python_packages && python_client -c "$imports" && return
    echo "SKIPPED: THE GROUP CHECK DID NOT RUN: the Python clients are missing and cannot be installed" >&2
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
}

summary() { grep -q "$1" "$work/broker.log" || fail "the summary lacks: $1"; }

install_python_clients
[ -x "$broker" ] || fail "$broker is not a program"
"$broker" --listen 127.0.0.1:0 --partitions 4 --group-initial-rebalance-delay 500ms \
    >"$work/broker.log" 2>"$work/broker.err" &
broker_pid=$!
wait_for "ready line" grep -q '^broker: listening on ' "$work/broker.log"
address=$(sed -n 's/^broker: listening on //p' "$work/broker.log")
python_client "$(dirname "$0")/groups.py" "$address" 2>"$work/python.err" || fail "groups.py"
kill -TERM "$broker_pid"
wait_for "end after SIGTERM" not_running "$broker_pid"
wait "$broker_pid" || fail "the broker ended badly"
broker_pid=""
sed 1d "$work/broker.log"
summary "duplicate batches: [1-9]"
summary "parked sessions: [0-9]* completed, 3 expired"
summary "acked before replicated: 0"
echo "group check: passed"
