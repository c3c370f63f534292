# Sourced by check.sh and film.sh: a headless Chromium and its driver, installed on Debian and Ubuntu.

install_chromium() {
    command -v chromedriver >/dev/null && command -v chromium >/dev/null && return
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    $sudo apt-get update -qq &&
        $sudo apt-get install -y -qq --no-install-recommends chromium chromium-driver
}
