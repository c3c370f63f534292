#!/usr/bin/env bash
# The live page in a real browser: check.sh target/release/examples/acks_all [FOLDER FOR SCREENSHOTS]
#
# Needs python3 and a headless Chromium, which is installed on Debian and Ubuntu. What is checked: see check.py.
set -euo pipefail

here=$(dirname "$0")
. "$here/chromium.sh"
if ! install_chromium; then
    echo "SKIPPED: THE LIVE PAGE WAS NOT CHECKED: chromium is missing and cannot be installed" >&2
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
fi
exec python3 "$here/check.py" "$@"
