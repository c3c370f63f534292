#!/usr/bin/env bash
# Real clients against the broker: check.sh target/release/examples/broker
#
# kcat produces every line of a file with acks=all and consumes it again, for each compression codec;
# a long poll wakes on data and ends at its time. With paused followers acks=all fails with the broker's
# timed-out error within its bounds and acks=1 succeeds; malformed frames close their own connection
# only; a client that is killed has its parked produce cancelled; SIGUSR1 tells what waits; SIGTERM ends the broker in time. Every
# wait is bounded. (clients/ puts other clients, too, through what any client does.)
set -euo pipefail

broker=${1:?usage: check.sh path/to/the/broker}
. "$(dirname "$0")/common.sh"
lines_file=$here/src/partition.rs
codecs="none gzip snappy lz4 zstd"
shutdown_ms_max=5000

install_kcat() {
    command -v kcat >/dev/null && return
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    if $sudo apt-get update -qq && $sudo apt-get install -y -qq kcat; then return; fi
    skipped "THE REAL CLIENT CHECK DID NOT RUN: kcat is missing and cannot be installed"
    exit 0
}

start_broker() {
    rm -f "$work/broker.log" # the line that is waited for must be the new one's
    "$broker" --listen 127.0.0.1:0 "$@" >"$work/broker.log" 2>"$work/broker.err" &
    broker_pid=$!
    pids[$broker_pid]=1
    wait_for "ready line" grep -qs '^broker: listening on ' "$work/broker.log"
    address=$(sed -n 's/^broker: listening on //p' "$work/broker.log")
}

stop_broker() {
    local start
    start=$(now_ms)
    kill -TERM "$broker_pid"
    wait_for "end after SIGTERM" not_running "$broker_pid"
    local elapsed_ms=$(($(now_ms) - start)) status=0
    wait "$broker_pid" || status=$?
    unset "pids[$broker_pid]"
    [ "$status" = 0 ] || fail "the broker's exit status is $status"
    [ "$elapsed_ms" -lt "$shutdown_ms_max" ] || fail "the shutdown took $elapsed_ms ms"
    sed 1d "$work/broker.log"
    echo "broker: ended $elapsed_ms ms after SIGTERM"
    summary "acked before replicated: 0"
}

summary() { grep -q "$1" "$work/broker.log" || fail "the summary lacks: $1"; }

# rtt KIND: of the last such response that kcat told of, in whole milliseconds.
rtt() { sed -n "s/.*Received $1.*rtt \([0-9]*\)[.0-9]*ms.*/\1/p" "$work/kcat.err" | tail -n 1; }

# start_kcat ARGUMENTS...: in the background; killed when this script ends.
start_kcat() {
    kcat -b "$address" "$@" <&0 2>"$work/kcat.err" & # or its input would be empty
    kcat_pid=$!
    pids[$kcat_pid]=1
}

# kcat must end by itself, and well.
kcat_ended() {
    wait_for "end of kcat" not_running "$kcat_pid"
    wait "$kcat_pid" || fail "$1"
    unset "pids[$kcat_pid]"
}

consume() { timeout -k 1 60 kcat -C -b "$address" -o beginning "$@" 2>"$work/kcat.err"; }

produce() { timeout -k 1 60 kcat -P -b "$address" "$@" 2>"$work/kcat.err"; }

# attack BYTES: the broker must close the connection, within 10 seconds.
attack() {
    exec {socket}<>"/dev/tcp/${address%:*}/${address##*:}"
    printf '%b' "$1" >&"$socket"
    local status=0
    timeout 10 cat <&"$socket" >/dev/null 2>&1 || status=$?
    exec {socket}>&-
    [ "$status" != 124 ] || fail "the connection was not closed after: $1"
}

install_kcat
[ -x "$broker" ] || fail "$broker is not a program"
lines=$(grep -c '' "$lines_file")

echo "== acks=all, every line of $(basename "$lines_file") ($lines), each codec"
start_broker
for codec in $codecs; do
    # Numbered, so that no line is empty: kcat leaves those out.
    grep -n '' "$lines_file" | produce -t "lines-$codec" -p 0 -z "$codec" -X acks=all ||
        fail "kcat was not acknowledged every line ($codec)"
    consume -t "lines-$codec" -p 0 -e -q >"$work/consumed" || fail "kcat did not consume ($codec)"
    cmp "$work/consumed" <(grep -n '' "$lines_file") || fail "not what was produced ($codec)"
done
stop_broker
summary "appended: $((lines * 5)) records"
summary "parked produces: [1-9][0-9]* completed, 0 expired, 0 cancelled" # it is seen that they wait
for codec in $codecs; do summary "$codec [1-9]"; done

echo "== long poll"
start_broker -v
echo "elsewhere" | produce -t lines -p 2 || fail "kcat was not acknowledged"
consume -t lines -p 1 -e -X fetch.wait.max.ms=1000 -X debug=protocol >"$work/consumed" ||
    fail "kcat did not consume from an empty partition"
echo "ended at its time: after $(rtt FetchResponse) ms (time: 1000 ms)"
[ "$(rtt FetchResponse)" -ge 1000 ] || fail "a long poll ended early"
start_kcat -C -t lines -p 0 -o beginning -c 1 -X fetch.wait.max.ms=30000 -X debug=protocol \
    >"$work/consumed"
wait_for "fetch request" grep -qs 'Sent FetchRequest' "$work/kcat.err"
echo "wakes" | produce -t lines -p 0 -X acks=all || fail "kcat was not acknowledged"
kcat_ended "kcat did not consume what was produced"
echo "woken by a produce: after $(rtt FetchResponse) ms (time: 30000 ms)"
[ "$(cat "$work/consumed")" = "wakes" ] || fail "not what was produced"
stop_broker
summary "parked fetches: [1-9]"

echo "== a record that is too large"
start_broker
head -c 2M /dev/zero >"$work/large"
if produce -t large -X acks=all -X message.max.bytes=100000000 "$work/large"; then
    fail "a record of 2 MiB was acknowledged"
fi
grep -q 'Broker: Message size too large' "$work/kcat.err" || fail "a record of 2 MiB: not the broker's error"
echo "small" | produce -t large -X acks=all || fail "kcat was not acknowledged after it"
stop_broker
summary "appended: 1 records"
summary "rejected connections: 0"

echo "== malformed frames while kcat produces"
start_broker
mkfifo "$work/feed"
start_kcat -P -t bystander -X acks=all < <(cat "$work/feed") # opens it in the background
exec {feed}>"$work/feed"
grep -n '' "$lines_file" >&"$feed"
attack '\x7f\xff\xff\xff'                                                 # oversized
attack '\xff\xff\xff\xff'                                                 # negative length
attack '\x00\x00\x00\x02\x00\x03'                                         # shorter than a header
attack 'GET / HTTP/1.1\r\n\r\n'                                           # not Kafka
attack '\x00\x00\x00\x0e\x00\x03\x00\x04\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff' # giant array
grep -n '' "$lines_file" >&"$feed"
exec {feed}>&-
kcat_ended "kcat was disturbed"
cat "$work/broker.err"
stop_broker
summary "appended: $((lines * 2)) records"
summary "rejected connections: 5"

echo "== followers paused"
start_broker --pause-followers --replica-lag-time-max-ms 86400000 -v # none leaves the in-sync set
for message in 1 2 3; do
    start=$(now_ms)
    if echo "message $message" | produce -t paused -X acks=all -X retries=0 \
        -X request.timeout.ms=1000 -X debug=protocol; then
        fail "an acks=all produce was acknowledged with paused followers"
    fi
    elapsed_ms=$(($(now_ms) - start))
    grep -q 'Delivery failed for message: Broker: Request timed out' "$work/kcat.err" ||
        fail "not the broker's timed-out error"
    echo "timed out after $elapsed_ms ms, the response after $(rtt ProduceResponse) ms (timeout: 1000 ms)"
    [ "$elapsed_ms" -ge 1000 ] && [ "$(rtt ProduceResponse)" -ge 1000 ] || fail "before the timeout"
    [ "$elapsed_ms" -lt 11000 ] || fail "more than 10 s after the timeout"
done
echo "one" | produce -t paused -X acks=1 || fail "acks=1 failed with paused followers"
echo "acks=1 succeeded"

# By the broker's metrics: that kcat has sent its request is not enough.
one_parked() {
    local at
    at=$(sed -n 's|^metrics: http://\(.*\)/metrics$|\1|p' "$work/broker.err")
    exec {socket}<>"/dev/tcp/${at%:*}/${at##*:}"
    printf 'GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$at" >&"$socket"
    timeout 10 cat <&"$socket" >"$work/metrics"
    exec {socket}>&-
    grep -q '^purgatory_parked{purgatory="produce"} 1$' "$work/metrics"
}

park() {
    start_kcat -P -t paused -X acks=all -X request.timeout.ms=600000 <<<"parked"
    wait_for "parked produce" one_parked
}

echo "== a client with a parked produce is killed"
park
kill -KILL "$kcat_pid"
{ wait "$kcat_pid" || true; } 2>/dev/null # the shell would tell
unset "pids[$kcat_pid]"
wait_for "cancellation" grep -q 'Requested("client disconnected")' "$work/broker.err"

echo "== SIGUSR1 and SIGTERM while a produce waits"
park
kill -USR1 "$broker_pid"
wait_for "snapshot" grep -q '^produce: 1 parked under' "$work/broker.err"
grep -q '^  oldest: .* under \[.*, expires in ' "$work/broker.err" || fail "no produce in the snapshot"
stop_broker
summary "parked produces: 0 completed, 3 expired, 2 cancelled"
echo "broker check: passed"
