# shellcheck shell=bash
# What the broker's scripts share; each sources it first. Sets here, work (a folder that goes with the script),
# cache, and pids: what must end with the script, as pids[number]=1.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/purgatory-broker-check # kept for the next time
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

# Of the partition 0 of $topic at $address, for kcat with the options.
all_in_sync() {
    local isrs
    isrs=$(kcat -L -b "$address" -t "$topic" "${options[@]}" 2>/dev/null | sed -n 's/.*partition 0,.*isrs: //p')
    [ "$(tr -dc , <<<"$isrs")" = ,, ]
}

# With what it starts; when it ends too late they end with it.
python_client() { PYTHONPATH=$cache timeout -k 1 90 python3 "$@"; }

# install_python MODULES PACKAGES...: into a folder of their own, unless the modules are there.
install_python() {
    local imports="import $1"
    shift
    python_client -c "$imports" 2>/dev/null && return
    timeout -k 1 120 python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
        --upgrade --target "$cache" "$@" && python_client -c "$imports"
}
