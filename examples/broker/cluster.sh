#!/usr/bin/env bash
# The broker as three processes: cluster.sh target/release/examples/broker
#
# Three scenarios with followers stopped by SIGSTOP, each with the outcome and the time that the client saw; then a
# follower is killed under load, and every acknowledged record must be there; then the leader is killed.
set -euo pipefail

broker=${1:?usage: cluster.sh path/to/broker}
lag=3 # seconds until a follower leaves the in-sync set
work=$(mktemp -d)
declare -A pids=() # what must end with the script: pids[number]=1

finish() {
    local pid
    for pid in "${!pids[@]}"; do
        kill -CONT "$pid" 2>/dev/null || true
        kill -TERM "$pid" 2>/dev/null || true
    done
    for pid in "${!pids[@]}"; do
        for _ in $(seq 100); do not_running "$pid" || sleep 0.05; done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true # or the shell tells
    done
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    tail -n 20 "$work"/*.log "$work"/*.err >&2 2>/dev/null || true
    exit 1
}

now_ms() { date +%s%3N; }

not_running() { ! kill -0 "$1" 2>/dev/null; }

# wait_for WHAT COMMAND...: until the command succeeds, up to 30 s.
wait_for() {
    local what=$1 end=$((SECONDS + 30))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "no $what within 30 s"
        sleep 0.02
    done
}

# Whether the in-sync set of partition 0 of $topic at $address is whole.
all_in_sync() {
    local isrs
    isrs=$(kcat -L -b "$address" -t "$topic" 2>/dev/null | sed -n 's/.*partition 0,.*isrs: //p')
    [ "$(tr -dc , <<<"$isrs")" = ,, ]
}

# start_ours OPTIONS...: a cluster; sets address and node[1..3].
start_ours() {
    rm -f "$work"/ours.{log,err} # the lines that are waited for must be the new one's
    "$broker" cluster --listen 127.0.0.1:0 --replica-lag-time-max-ms "${lag}000" "$@" \
        >"$work/ours.log" 2>"$work/ours.err" &
    cluster=$!
    pids[$cluster]=1
    wait_for "address" grep -qs 'listening on' "$work/ours.log"
    address=$(sed -n 's/^broker: listening on //p' "$work/ours.log")
    list=$(sed -n 's/.*--cluster //p' "$work/ours.log")
    for id in 1 2 3; do
        node[id]=$(sed -n "s/^broker: node $id is process //p" "$work/ours.log")
    done
    wait_for "followers" followers
}
followers() { [ "$(grep -cs follows "$work/ours.err")" = 2 ]; }
stop_ours() {
    kill -TERM "$cluster"
    wait "$cluster" || fail "exit status $? of the cluster"
    unset "pids[$cluster]"
}

# produce TIMEOUT_MS: one record with acks=all; prints the outcome as the protocol names it, and milliseconds.
produce() {
    local begun outcome
    begun=$(now_ms)
    if timeout -k 1 60 kcat -P -b "$address" -t "$topic" -p 0 -X acks=all -X retries=0 -X "request.timeout.ms=$1" \
        -X message.timeout.ms=30000 -X socket.timeout.ms=20000 <<<"record" 2>"$work/kcat.err"; then
        outcome=ok
    else
        case $(<"$work/kcat.err") in
        *"Request timed out"*) outcome=REQUEST_TIMED_OUT ;;
        *) outcome=OTHER ;;
        esac
    fi
    echo "$outcome $(($(now_ms) - begun))"
}
followers_do() { kill "-$1" "${node[2]}" "${node[3]}"; }
settled() { [ "$(produce 1000 | cut -d' ' -f1)" = ok ]; }

# expect OUTCOME MIN_MS MAX_MS TIMEOUT_MS: of one produce.
expect() {
    local outcome ms
    read -r outcome ms < <(produce "$4")
    echo "$outcome after $ms ms, timeout $4 ms"
    [ "$outcome" = "$1" ] || fail "$outcome, expected $1"
    [ "$ms" -ge "$2" ] && [ "$ms" -le "$3" ] || fail "after $ms ms, expected $2 to $3"
}

declare -a node=()
topic="scenarios"
start_ours
wait_for "first acknowledgement" settled
echo "== all up"
expect ok 0 2000 10000
echo "== one follower is stopped, and leaves the in-sync set"
kill -STOP "${node[3]}"
expect ok 500 $((lag * 1000 + 4000)) 20000
kill -CONT "${node[3]}"
wait_for "recovery" settled
wait_for "whole in-sync set" all_in_sync
echo "== both leave it while the produce waits"
followers_do STOP
expect REQUEST_TIMED_OUT 8000 10000 8000
followers_do CONT
stop_ours

echo "== a follower is killed under load"
start_ours
topic="load"
mkfifo "$work/feed"
timeout -k 1 120 kcat -P -b "$address" -t load -p 0 -X acks=all -X linger.ms=1 -X message.timeout.ms=60000 \
    -X batch.num.messages=100 <"$work/feed" 2>"$work/load.err" &
load=$!
pids[$load]=1
exec {feed}>"$work/feed"
high_watermark() { kcat -Q -b "$address" -t load:0:-1 2>/dev/null | sed -n 's/.*offset //p'; }
reached() { local at; at=$(high_watermark); [ "${at:-0}" -ge "$1" ]; }
seq 1 20000 >&"$feed"
wait_for "replication" reached 1000
kill -KILL "${node[2]}"
seq 20001 40000 >&"$feed"
# A new process takes its place; it must not keep the feed open.
(exec {feed}>&- && exec "$broker" --node 2 --cluster "$list") 2>"$work/again.err" >/dev/null &
pids[$!]=1
seq 40001 60000 >&"$feed"
exec {feed}>&-
wait "$load" || fail "kcat was not acknowledged every record"
unset "pids[$load]"
kcat -C -b "$address" -t load -p 0 -e -q -X isolation.level=read_committed >"$work/consumed" 2>"$work/consume.err"
[ "$(sort -un "$work/consumed" | wc -l)" = 60000 ] || fail "of 60000 acknowledged records there are $(sort -un "$work/consumed" | wc -l)"
echo "60000 acknowledged, $(wc -l <"$work/consumed") read, none missing"
stop_ours

echo "== the leader is killed, one follower is stopped"
start_ours
kill -STOP "${node[3]}"
kill -KILL "${node[1]}"
wait_for "end of the cluster" not_running "$cluster"
if wait "$cluster"; then fail "the cluster ended well without its leader"; fi
unset "pids[$cluster]"
grep -q 'node 1, the leader, ended: signal: 9' "$work/ours.err" || fail "nobody said that the leader ended"
for id in 1 2 3; do
    not_running "${node[id]}" || fail "node $id is still there, if only as a zombie"
done
echo "its followers end with it, and nothing is left of them"
echo "cluster check: passed"
