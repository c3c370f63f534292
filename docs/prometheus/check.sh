#!/usr/bin/env bash
# Checks real programs with a real Prometheus: check.sh PATH/acks_all PATH/broker [PATH/misbehave]
#
# promtool checks the scrape config and the rules, and runs the tests of the rules. With --rules that is all.
# Then check.py scrapes the programs with a Prometheus of its own and asserts by query: the books agree at rest, every
# query of the dashboard has an answer, every alert fires for the programs that misbehave and for no others.
set -euo pipefail

usage="usage: check.sh --rules | PATH/acks_all PATH/broker [PATH/misbehave]"
acks_all=${1:?$usage}
if [ "$acks_all" != --rules ]; then
    broker=${2:?$usage}
    misbehave=${3:-$(dirname "$acks_all")/misbehave}
fi
here=$(cd "$(dirname "$0")" && pwd)

# install_missing COMMAND: installs the Debian package of that name, and turns its service off.
install_missing() {
    command -v "$1" >/dev/null && return
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    if $sudo apt-get update -qq &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null; then
        if [ -d /run/systemd/system ]; then $sudo systemctl disable --now --quiet "$1" || true; fi
        return
    fi
    echo "SKIPPED: THE PROMETHEUS CHECK DID NOT RUN: $1 is missing and cannot be installed" >&2
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
}

install_missing prometheus
promtool check config "$here/prometheus.yml"
promtool test rules "$here/alerts_test.yml"
[ "$acks_all" != --rules ] || exit 0
install_missing kcat
exec python3 "$here/check.py" "$acks_all" "$broker" "$misbehave"
