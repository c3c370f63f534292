#!/usr/bin/env bash
# Real clients in consumer groups: groups.sh target/release/examples/broker
#
# Members of a group share a topic, one is killed and its partitions move, offsets are resumed;
# idempotent producers whose connections are cut leave each record once (groups.py). Every wait is
# bounded.
set -euo pipefail

broker=${1:?usage: groups.sh path/to/the/broker}
. "$(dirname "$0")/common.sh"

summary() { grep -q "$1" "$work/broker.log" || fail "the summary lacks: $1"; }

if ! install_python "confluent_kafka, kafka" "confluent-kafka==2.16.1" "kafka-python==3.0.12"; then
    skipped "THE GROUP CHECK DID NOT RUN: the Python clients are missing and cannot be installed"
    exit 0
fi
[ -x "$broker" ] || fail "$broker is not a program"
"$broker" --listen 127.0.0.1:0 --partitions 4 --group-initial-rebalance-delay 500ms \
    >"$work/broker.log" 2>"$work/broker.err" &
broker_pid=$!
pids[$broker_pid]=1
wait_for "ready line" grep -q '^broker: listening on ' "$work/broker.log"
address=$(sed -n 's/^broker: listening on //p' "$work/broker.log")
python_client "$here/groups.py" "$address" 2>"$work/python.err" || fail "groups.py"
kill -TERM "$broker_pid"
wait_for "end after SIGTERM" not_running "$broker_pid"
wait "$broker_pid" || fail "the broker ended badly"
unset "pids[$broker_pid]"
sed 1d "$work/broker.log"
summary "duplicate batches: [1-9]"
summary "parked sessions: [0-9]* completed, 3 expired"
summary "acked before replicated: 0"
echo "group check: passed"
