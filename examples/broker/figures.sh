#!/usr/bin/env bash
# How fast acks=all is: figures.sh target/release/examples/broker [--kafka DIR]
#
# Throughput and latency of acks=all produces with 1 and with 100 connections: to the broker with its followers inside,
# with followers that are processes, and, with --kafka, to a real Kafka 0.9.0.1 (DIR as for cluster.sh). What is
# measured is told in figures.py. ROUNDS and SECONDS_EACH, 3 and 4 by default, are of each load; the table has medians.
set -euo pipefail

broker=${1:?usage: figures.sh path/to/the/broker [--kafka DIR]}
[ "${2:-}" != --kafka ] || kafka=${3:?--kafka takes a directory}
kafka=${kafka:-}
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-4}
. "$(dirname "$0")/common.sh"
lag=10 # seconds until a follower leaves the in-sync set
topic="figures"
declare -a node=() options=()

# start_ours LOG WORDS...: a broker; sets address and started.
start_ours() {
    local log=$1
    shift
    "$broker" "$@" --listen 127.0.0.1:0 --partitions 1 --follower-interval 0ms >"$work/$log.log" 2>"$work/$log.err" &
    started=$!
    pids[$started]=1
    wait_for "address" grep -qs 'listening on' "$work/$log.log"
    address=$(sed -n 's/^broker: listening on //p' "$work/$log.log")
}
stop_ours() {
    kill -TERM "$started"
    wait "$started" || fail "exit status $? of the broker"
    unset "pids[$started]"
}
settled() {
    timeout -k 1 20 kcat -P -b "$address" -t "$topic" -p 0 -X acks=all "${options[@]}" <<<"first" 2>/dev/null
}

# measure FILE NAME KAFKA09 PID...
measure() {
    wait_for "first acknowledgement" settled
    wait_for "whole in-sync set" all_in_sync
    echo "measuring: $2" >&2
    PYTHONPATH=$cache python3 "$here/figures.py" measure "$2" "$address" "$3" "$rounds" "$seconds" "${@:4}" \
        >"$work/$1" & # so that it ends with this script
    local measures=$!
    pids[$measures]=1
    wait "$measures" || fail "the measurement of $2"
    unset "pids[$measures]"
    files+=("$work/$1")
}

declare -a files=()
command -v kcat >/dev/null || fail "no kcat"
install_python confluent_kafka "confluent-kafka==2.16.1" || fail "confluent-kafka is missing and cannot be installed"
perf record -q -e cpu-clock -o "$work/perf" true >/dev/null 2>&1 || echo "perf is not there: no shares" >&2
echo "$(nproc) cores, load average before: $(cut -d' ' -f1-3 /proc/loadavg); $rounds rounds of $seconds s each"

start_ours one
measure 1.json "broker" no "$started"
stop_ours

start_ours three cluster --replica-lag-time-max-ms "${lag}000"
for id in 1 2 3; do node[id]=$(sed -n "s/^broker: node $id is process //p" "$work/three.log"); done
measure 2.json "broker cluster" no "${node[@]}"
stop_ours

if [ -n "$kafka" ]; then
    heap=1g
    . "$here/real_kafka.sh"
    measure 3.json "Kafka 0.9.0.1, 3 brokers" yes "${node[@]}"
fi
python_client "$here/figures.py" table "${files[@]}"
