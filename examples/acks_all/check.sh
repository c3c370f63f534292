#!/usr/bin/env bash
# Runs the program with many arguments: check.sh target/release/examples/acks_all
#
# Each run checks itself and fails when its counts do not agree. The first runs read the repository's
# text, a file and standard input. Then, for each way to wait: a follower stalls (produces must expire);
# one falls out (they must not), and joins again; a new leader lacks records; the metrics are scraped;
# Ctrl-C.
set -euo pipefail

run=${1:?usage: check.sh path/to/acks_all}
here=$(dirname "$0")
work=$(mktemp -d)
pid=""
finish() {
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    tail -n 20 "$work"/* >&2
    exit 1
}

# row NAME: prints a number of the last table, without commas.
row() { sed -n "s/^$1  *\([0-9,]*\).*/\1/p" "$work/table" | tr -d ,; }

# table ARGS...: a run that must succeed; its table is printed and kept.
table() {
    echo "== acks_all $*"
    "$run" "$@" >"$work/table" 2>"$work/progress" || fail "exit status $?: acks_all $*"
    cat "$work/table"
    [ "$(wc -l <"$work/table")" = 10 ] || fail "the table has not ten lines"
    [ "$(row produced)" -gt 0 ] && [ "$(row lost)" = 0 ] || fail "produced nothing, or lost some"
}

table --seconds 2 --timeout 1m
[ "$(row completed)" = "$(row produced)" ] || fail "some did not complete"
table --seconds 2 --input "$here/partition.rs"
table --seconds 2 --input - <"$here/text/waiting-room.txt"
# Each way to wait.
for way in kafka replica-sets; do
    # The stall is long: the line that names the follower comes once a second, and may be late.
    table --by $way --seconds 3 --timeout 500ms --stall-from 500ms --stall-for 2400ms
    [ "$(row expired)" -gt 0 ] || fail "a stalled follower made nothing expire"
    grep -q "follower 2 stalled, " "$work/progress" || fail "the stalled follower was not named"

    table --by $way --seconds 2 --timeout 1m --stall-from 200ms --stall-for 500ms --drop-follower
    [ "$(row completed)" = "$(row produced)" ] || fail "some did not go on without the follower"
    grep -q "^follower 2 fell out of the in-sync set: [1-9][0-9,]* produces waited" "$work/progress" ||
        fail "no produce waited for the follower that fell out"

    table --by $way --seconds 2 --timeout 1m --stall-from 200ms --stall-for 500ms --drop-follower --join-follower
    [ "$(row completed)" = "$(row produced)" ] || fail "some did not complete"
    grep -q "^follower 2 joined the in-sync set again, once it had caught up: [1-9]" "$work/progress" ||
        fail "the follower did not catch up and join"

    # With a lag, the new leader always lacks some records.
    table --by $way --seconds 2 --timeout 1m --truncate --follower-lag 20ms
    [ "$(row cancelled)" -gt 0 ] || fail "the new leader ended no produce of the last one"
    grep -q "^follower 1 became the leader: [1-9][0-9,]* records were taken back" "$work/progress" ||
        fail "the new leader lacked nothing"
done

# scrape HOST:PORT/PATH
scrape() {
    local at=${1%%/*}
    exec {socket}<>"/dev/tcp/${at%:*}/${at##*:}"
    printf 'GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${1#*/}" "$at" >&"$socket"
    timeout 10 cat <&"$socket"
    exec {socket}>&-
}

# wait_for WHAT COMMAND...: repeats the command until it succeeds, up to 60 s.
wait_for() {
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "no $what within 60 s"
        sleep 0.05
    done
}
# Match the whole line: it is written in pieces.
address_printed() { address=$(sed -n 's|^metrics: http://\(.*/metrics\)$|\1|p' "$work/progress") && [ -n "$address" ]; }
some_parked() {
    scrape "$address" >"$work/metrics"
    grep -q '^purgatory_parked_total{purgatory="produce"} [1-9]' "$work/metrics"
}

for way in kafka replica-sets; do
    echo "== a scrape, then Ctrl-C, --by $way"
    : >"$work/progress" # without the address of a run that has ended
    "$run" --by $way --seconds 86400 >"$work/table" 2>"$work/progress" &
    pid=$!
    wait_for "metrics address" address_printed
    wait_for "parked operation in the metrics" some_parked
    grep '^purgatory_' "$work/metrics"
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    pid=""
    [ "$status" = 0 ] || fail "exit status $status after Ctrl-C"
    cat "$work/table"
    [ "$(row lost)" = 0 ] || fail "Ctrl-C lost some"
done
if "$run" --input "$work/missing" >"$work/table" 2>"$work/progress"; then fail "a missing file was read"; fi
grep -q "$work/missing" "$work/progress" || fail "the missing file was not named"
echo "acks_all check: passed"
