#!/usr/bin/env bash
# The moving picture in the README: film.sh target/release/examples/acks_all docs/charts/live-page.webp
#
# Needs python3 with venv and a headless Chromium, which is installed on Debian and Ubuntu; Pillow comes from PyPI
# into a folder of its own below target. What is filmed: see film.py.
set -euo pipefail

run=${1:?usage: film.sh PATH/acks_all PICTURE}
picture=${2:?usage: film.sh PATH/acks_all PICTURE}
here=$(dirname "$0")
. "$here/chromium.sh"
install_chromium
venv=$here/../../target/film
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c "import PIL" 2>/dev/null || "$venv/bin/pip" install --quiet pillow==12.0.0
exec "$venv/bin/python" "$here/film.py" "$run" "$picture"
