#!/usr/bin/env bash
# Three gateways on one NATS server, under load: check.sh target/release/examples/external_events
#
# While thousands of requests wait, load.py kills and restarts a gateway, kills and restarts the NATS
# server, and lets a gateway sleep through a restart of that server. No request may end early, twice or
# never, or miss an event; a shutdown answers every request. Every wait is bounded.
set -euo pipefail

gateway=${1:?usage: check.sh path/to/external_events}
here=$(dirname "$0")

# Installs Debian's package, without starting its service.
install_nats() {
    command -v nats-server >/dev/null && return
    local policy=/usr/sbin/policy-rc.d ours="" status=0
    if [ ! -e $policy ] && printf '#!/bin/sh\nexit 101\n' 2>/dev/null >$policy; then
        chmod +x $policy && ours=yes
    fi
    { apt-get install --yes --no-install-recommends nats-server ||
        { apt-get update && apt-get install --yes --no-install-recommends nats-server; }; } \
        >/dev/null 2>&1 || status=$?
    [ -z "$ours" ] || rm -f $policy
    [ "$status" = 0 ] && command -v nats-server >/dev/null && return
    echo "SKIPPED: THE CHECK OF SEVERAL GATEWAYS DID NOT RUN: nats-server is missing and cannot be installed" >&2
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
}

install_nats
[ -x "$gateway" ] || { echo "FAILED: $gateway is not a program" >&2 && exit 1; }
ulimit -n 8192 2>/dev/null || ulimit -n "$(ulimit -Hn)"
# load.py ends the programs that it starts; the timeout is for the case that it hangs.
timeout -k 5 1200 python3 "$here/load.py" "$gateway"
echo "external_events check: passed"
