#!/usr/bin/env bash
# A real Kafka 0.9.0.1 for run.py until SIGTERM: kafka.sh DIR (as for cluster.sh). Prints the leader's
# address and its followers' processes.
set -euo pipefail

kafka=${1:?usage: kafka.sh DIR}
. "$(dirname "$0")/../common.sh"
trap 'exit 143' TERM INT
lag=15 # seconds until a follower leaves the in-sync set
topic="scenarios" partitions=3
declare -a node=() options=()
settled() {
    timeout -k 1 20 kcat -P -b "$address" -t "$topic" -p 0 -X acks=all "${options[@]}" <<<"first" 2>/dev/null
}
. "$here/real_kafka.sh"
echo "ready: $address ${node[2]} ${node[3]}"
wait
