# shellcheck shell=bash
# What the broker's scripts share; each sources it first. Sets here, work (a folder that goes with the script),
# and pids: what must end with the script, as pids[number]=1.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
declare -A pids=()

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

# skipped WHAT: says so, and fails where CI=true.
skipped() {
    echo "SKIPPED: $*" >&2
    if [ "${CI:-}" = true ]; then exit 1; fi
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
