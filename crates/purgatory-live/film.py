#!/usr/bin/env python3
"""A film of the live page: film.py target/release/examples/acks_all PICTURE

acks_all runs for real, and one of its followers stalls: produces pile up, expire, and complete when it is back. The
page is seen in a headless Chromium at even distances; each frame is a screenshot of it with a caption below.
"""

import base64
import io
import pathlib
import sys
import tempfile
import time

from PIL import Image

from check import TEXT, Browser, Failed, Program, check, said, until

WIDTH, HEIGHT = 1120, 750
FRAME_S = 0.2
STALL_FROM_S, STALL_S, TIMEOUT_S, RUN_S = 4, 5, 2, 13
BEGIN_S, END_S = 1.5, 12.5
LOAD = ["--rate", "2000", "--in-flight", "2000", "--seconds", str(RUN_S), "--timeout", f"{TIMEOUT_S}s",
        "--stall-from", f"{STALL_FROM_S}s", "--stall-for", f"{STALL_S}s"]
CAPTION = """
let caption = document.getElementById('caption');
if (!caption) {
  caption = document.body.appendChild(document.createElement('p'));
  caption.id = 'caption';
  caption.style.cssText = 'position: fixed; inset: auto 0 0 0; padding: 9px 24px; background: #1b1e22; color: #fff;'
    + 'font-size: 15px; font-weight: 550; z-index: 9';
}
caption.textContent = arguments[0];
"""
BYTES_MAX = 1_500_000


def caption(at_s):
    if at_s < STALL_FROM_S:
        return "Both followers fetch: each produce waits a few milliseconds for them."
    if at_s < STALL_FROM_S + TIMEOUT_S:
        return "A follower stalls: produces pile up."
    if at_s < STALL_FROM_S + STALL_S:
        return f"After {TIMEOUT_S} s their time is up: the timing wheel expires them."
    return "The follower is back: what waits completes at once."


def frames(browser, begun):
    """Screenshots at even distances from BEGIN_S to END_S after `begun`."""
    taken = []
    for number in range(int((END_S - BEGIN_S) / FRAME_S) + 1):
        at_s = BEGIN_S + number * FRAME_S
        late_s = time.monotonic() - begun - at_s
        check(late_s < 1, f"the frame at {at_s:.1f} s is {late_s:.1f} s late: this machine is too busy")
        time.sleep(max(0, -late_s))
        browser.run(CAPTION, caption(time.monotonic() - begun))
        png = base64.b64decode(browser.devtools("Page.captureScreenshot", format="png")["data"])
        taken.append(Image.open(io.BytesIO(png)).convert("RGB"))
    return taken


def main():
    program, picture = sys.argv[1], pathlib.Path(sys.argv[2])
    browser = Browser(pathlib.Path(tempfile.mkdtemp(prefix="live-film-")))
    try:
        browser.width(WIDTH, HEIGHT)
        browser.scheme("light")
        begun = time.monotonic()
        acks_all = Program(program, *LOAD)
        browser.go(acks_all.page)
        until("the page is live", lambda: browser.run(TEXT, "#status") == "live")
        taken = frames(browser, begun)
        check(acks_all.process.wait(30) == 0, "acks_all failed")
    finally:
        browser.close()
    taken[0].save(picture, save_all=True, append_images=taken[1:], duration=int(FRAME_S * 1000), loop=0,
                  quality=60, method=6, minimize_size=True)
    size = picture.stat().st_size
    check(size <= BYTES_MAX, f"{picture} has {size} bytes, more than {BYTES_MAX}")
    said(f"{picture}: {len(taken)} frames, {END_S - BEGIN_S:.0f} s, {size} bytes")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"FAILED: {failure}")
