#!/usr/bin/env bash
# The live page in a real browser: check.sh target/release/examples/acks_all [FOLDER FOR SCREENSHOTS]
#
# Needs python3 and a headless Chromium, which is installed on Debian and Ubuntu. What is checked: see check.py.
set -euo pipefail

install_chromium() {
    command -v chromedriver >/dev/null && command -v chromium >/dev/null && return
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    if $sudo apt-get update -qq &&
        $sudo apt-get install -y -qq --no-install-recommends chromium chromium-driver; then return; fi
    echo "SKIPPED: THE LIVE PAGE WAS NOT CHECKED: chromium is missing and cannot be installed" >&2
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
}

install_chromium
exec python3 "$(dirname "$0")/check.py" "$@"
