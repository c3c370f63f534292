#!/usr/bin/env python3
"""The live page in a headless Chromium: check.py target/release/examples/acks_all [FOLDER FOR SCREENSHOTS]

Drives chromedriver by the WebDriver protocol with what python3 brings. First the page on a server of its own with
made-up events: numbers that are known, hostile keys, a connection that is lost in several ways. Then acks_all for real:
the page draws, it moves, at rest its numbers are those of /metrics, the end of the program is noticed, and Ctrl-C does
not wait for a page that listens. In light and in dark, on a desktop and on a phone; nothing is asked of another host.
Every wait has a deadline; no step counts on a pause being long enough.
"""

import base64
import contextlib
import hashlib
import http.client
import http.server
import json
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PAGE = (HERE / "src/page.html").read_text()
WAIT_S = 15
BEGUN = time.monotonic()


class Failed(Exception):
    pass


def check(right, what):
    if not right:
        raise Failed(what)


def said(what):
    print(f"{time.monotonic() - BEGUN:5.1f} s: {what}", flush=True)


def until(what, look, wait_s=WAIT_S):
    """The first answer of `look` that is true, asked again and again."""
    end = time.monotonic() + wait_s
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Failed(f"not within {wait_s} s: {what}; the last answer was {answer!r}")
        time.sleep(0.02)


# ---- the browser -------------------------------------------------------------------------------


class Browser:
    """A session of chromedriver."""

    def __init__(self, work):
        self.log = open(work / "chromedriver.log", "w+")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=self.log, stderr=subprocess.STDOUT)
        port = until("chromedriver listens", self.port)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--no-first-run", "--disable-background-networking", "--disable-component-update",
                     "--window-size=1280,900", f"--user-data-dir={work}/profile"],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": 10_000, "pageLoad": 20_000},
        }
        self.session = ""
        self.session = "/session/" + self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def port(self):
        found = re.search(r"started successfully on port (\d+)", pathlib.Path(self.log.name).read_text())
        return found and int(found[1])

    def ask(self, method, path, body=None):
        self.connection.request(method, self.session + path, json.dumps(body or {}) if method == "POST" else None)
        value = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise Failed(f"{path}: {value['error']}: {value['message']}")
        return value

    def go(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def width(self, width, height, phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=2 if phone else 1, mobile=phone)

    def scheme(self, name):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def shot(self, path):
        size = self.run("const e = document.documentElement; return [e.clientWidth, e.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        png = self.devtools("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(png))

    def console(self):
        """What was written there since the last call, but for the advice on how this check reads the canvases."""
        said = [f"{entry['level']}: {entry['message']}" for entry in self.ask("POST", "/se/log", {"type": "browser"})]
        return [line for line in said if "willReadFrequently" not in line]

    def requested(self):
        """The addresses asked since the last call."""
        entries = self.ask("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [message["params"]["request"]["url"] for message in messages
                if message["method"] == "Network.requestWillBeSent"]

    def close(self):
        with contextlib.suppress(Exception):
            self.ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait(10)
        self.log.close()


# What the page shows: every number that has a metric's name.
NUMBERS = "return [...document.querySelectorAll('[data-metric]')].map((e) => [e.dataset.metric, Number(e.dataset.value)])"
# Empty while the page has no such element, as when it begins anew.
TEXT = "return document.querySelector(arguments[0])?.innerText ?? ''"
BANNER = "const banner = document.getElementById('banner'); return banner.hidden ? null : banner.textContent"
# How many pixels of each canvas differ from its first colour, and a sum over all of them.
PIXELS = """
return [...document.querySelectorAll('canvas')].filter((canvas) => canvas.checkVisibility()).map((canvas) => {
  if (canvas.width === 0 || canvas.height === 0) return [0, 0];
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let drawn = 0, sum = 0;
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 0) drawn++;
    colours.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
    sum = (sum * 31 + data[at] + data[at + 1] * 3 + data[at + 2] * 7 + data[at + 3]) % 1000000007;
  }
  return [drawn > 0 ? colours.size : 0, sum];
})
"""
# Whether the chart has its line so far from the left: a pixel of the line's colour, which grid and numbers have not.
LINE_AT = """
const canvas = document.querySelector(arguments[0]);
if (canvas.width === 0 || canvas.height === 0) return false;
const hex = getComputedStyle(document.documentElement).getPropertyValue('--parked').trim();
const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const { data } = canvas.getContext('2d').getImageData(Math.round(canvas.width * arguments[1]), 0, 2, canvas.height);
for (let at = 0; at < data.length; at += 4) {
  if (data[at + 3] > 200 && wanted.every((value, of) => Math.abs(data[at + of] - value) < 12)) return true;
}
return false;
"""
# Texts with too little contrast against what is behind them (WCAG AA: 4.5, or 3 for large ones).
PALE = """
const lightness = ([r, g, b]) => {
  const linear = [r, g, b].map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
};
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = numbers(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const pale = [];
let looked = 0;
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('script, style, noscript')) continue;
  const style = getComputedStyle(element);
  const [ink, paper] = [lightness(numbers(style.color)), lightness(ground(element))];
  const contrast = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
  looked++;
  if (contrast < (large ? 3 : 4.5)) pale.push(`${contrast.toFixed(2)}: ${texts.currentNode.data.trim().slice(0, 40)}`);
}
return { looked, pale, paper: lightness(ground(document.body)) };
"""
WIDE = """
const shard = document.documentElement.clientWidth;
const wide = [...document.body.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > shard + 1);
return { shard, page: document.documentElement.scrollWidth, wide: wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)) };
"""
# Texts of which a part is not seen: beyond the page's edge, or in what an element around them cuts off.
CUT = """
const cut = [];
let looked = 0;
const shard = document.documentElement.clientWidth;
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('script, style, noscript')) continue;
  looked++;
  const range = document.createRange();
  range.selectNodeContents(texts.currentNode);
  let seen = { left: 0, right: shard, top: -Infinity, bottom: Infinity };
  for (let at = element; at; at = at.parentElement) {
    const style = getComputedStyle(at);
    if (style.overflowX === 'visible' || style.display === 'inline') continue;
    const box = at.getBoundingClientRect();
    seen = { left: Math.max(seen.left, box.left), right: Math.min(seen.right, box.right),
      top: Math.max(seen.top, box.top), bottom: Math.min(seen.bottom, box.bottom) };
  }
  const outside = [...range.getClientRects()].some((part) => part.width > 0 && (part.left < seen.left - 1
    || part.right > seen.right + 1 || part.top < seen.top - 1 || part.bottom > seen.bottom + 1));
  if (outside) cut.push(texts.currentNode.data.trim().slice(0, 40));
}
// Texts side by side in one line that run into each other.
for (const row of document.querySelectorAll('.tile .big, .cardhead, .bars li, table tr, .facts')) {
  if (!row.checkVisibility()) continue;
  const boxes = [...row.children].filter((e) => e.textContent.trim()).map((e) => {
    const range = document.createRange();
    range.selectNodeContents(e);
    return [e, range.getBoundingClientRect()];
  });
  boxes.forEach(([e, one], at) => boxes.slice(at + 1).forEach(([, other]) => {
    if (one.right > other.left + 1 && other.right > one.left + 1 && one.bottom > other.top + 1 && other.bottom > one.top + 1) {
      cut.push(`${e.textContent.trim().slice(0, 40)} runs into its neighbour`);
    }
  }));
}
return { looked, cut };
"""

def looks_right(browser, shots, name):
    """In light and dark there is contrast; on a desktop and on phones nothing sticks out or is cut."""
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        for device, width, height in (("desktop", 1280, 900), ("phone", 375, 812), ("narrow", 320, 640)):
            browser.width(width, height, device != "desktop")
            # A phone shows a page that is too wide as if it was wider itself.
            until(f"{name}, {device}: wider than {width}: {browser.run(WIDE)}", lambda: browser.run("return innerWidth") == width, 5)
            wide = until("all canvases are drawn anew", lambda: all(n > 0 for n, _ in browser.run(PIXELS)) and browser.run(WIDE))
            check(wide["page"] <= wide["shard"] == width and not wide["wide"], f"{name}, {device}: wider than it may be: {wide}")
            cut = browser.run(CUT)
            check(cut["looked"] > 30 and not cut["cut"], f"{name}, {device}: not all of these can be read: {cut}")
            browser.shot(shots / f"{name}-{scheme}-{device}.png")
        colours = browser.run(PALE)
        check(colours["looked"] > 40 and not colours["pale"], f"{name}, {scheme}: too little contrast: {colours}")
        check((colours["paper"] > .5) == (scheme == "light"), f"{name}, {scheme}: {colours['paper']} of white behind the text")
    browser.scheme("light")
    browser.width(1280, 900)


def clean(browser, hosts):
    """No error was written to the console, and no other host was asked."""
    console = browser.console()
    check(not console, f"on the console: {console}")
    urls = browser.requested()
    check(urls, "no request was seen")
    others = [url for url in urls if not url.startswith("data:") and urllib.parse.urlsplit(url).netloc not in hosts]
    check(not others, f"asked of others: {others}")


# ---- made-up events ----------------------------------------------------------------------------


def policy():
    """The policy that the crate sends, which must name the script and the style that the page has."""
    source = (HERE / "src/live.rs").read_text()
    for tag in ("style", "script"):
        [body] = re.findall(f"<{tag}>(.*?)</{tag}>", PAGE, re.S)
        wanted = f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        check(wanted in source, f"CONTENT_SECURITY_POLICY in src/live.rs names another {tag}; now it is {wanted}")
    return "".join(re.findall(r'^ +"([^"]*)",?$', source.split("CONTENT_SECURITY_POLICY: &str")[1].split(";\n")[0], re.M))


class Fixture:
    """Serves the page, and sends its events to all listeners, or turns them away."""

    def __init__(self, port=0):
        self.event, self.changed, self.mode = None, threading.Condition(), "serve"
        fixture = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path == "/live":
                    self.answer(200, "text/html; charset=utf-8", PAGE.encode())
                elif self.path == "/live/events" and fixture.mode == "refuse":
                    self.answer(503, "text/plain", b"later")
                elif self.path == "/live/events":
                    self.stream()
                else:
                    self.answer(404, "text/plain", b"no")

            def answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Security-Policy", policy())
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def stream(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(b"retry: 200\n")
                    shown = None
                    while fixture.mode != "refuse":
                        with fixture.changed:
                            fixture.changed.wait_for(lambda: fixture.event is not shown or fixture.mode == "refuse", 0.5)
                            event = fixture.event
                        # As the real one, an event a while even if nothing changes; silence if it is to be silent.
                        # One that is slow sends each event once.
                        is_sent = fixture.mode == "serve" or fixture.mode == "slow" and event is not shown
                        if event is not None and is_sent:
                            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                            self.wfile.flush()
                            shown = event

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.host = "127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def set(self, event=None, mode=None):
        with self.changed:
            self.event, self.mode = event or self.event, mode or self.mode
            self.changed.notify_all()

    def send_slowly(self, at_s, pause_s):
        """Sends an event after each pause, as a program that takes a fifth of that for one."""
        while self.mode == "slow":
            self.set(made_up(at_s, 204, histogram()))
            time.sleep(pause_s)
            at_s += pause_s


BOUNDS_S = [1e-05, 2.5e-05, 5e-05, 1e-04, 2.5e-04, 5e-04, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5,
            10, 30, 60, 120, 300, 600]
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"


def histogram(**counts):
    """Of each bucket a count, or a count and the mean of the times in it, which else is in its middle."""
    buckets, sums_s = [0] * 25, [0.0] * 25
    for at, n in counts.items():
        at = int(at[1:])
        n, mean = n if isinstance(n, tuple) else (n, sum(([0] + BOUNDS_S + [1000])[at:at + 2]) / 2)
        buckets[at], sums_s[at] = n, n * mean
    return {"buckets": buckets, "sums_s": sums_s, "count": sum(buckets), "sum_s": sum(sums_s)}


def made_up(at_s, ended, waits, expired=None, idle=False, times=1, late=None):
    """An event of two timers and three purgatories; `ended` of each outcome, `waits` in the completed ones' histogram.

    The last purgatory and the last timer are as nothing ever happened to them; `idle`: the others hold nothing now.
    All counts are so many `times` as large. The minute before has 8 parked in its first half.
    """
    parked = 0 if idle else 12 * times
    timer = lambda name: {"name": name, "now_s": at_s, "tick_s": .001, "stats": {
        "pending": parked, "fired": ended * times, "cancelled": 5 * times, "cascaded": 6, "wake_ups": 7, "spurious_wake_ups": 0, "panics": 0,
        "executor_queue": None, "turns": histogram()}}
    operation = lambda id, keys, **more: {"id": id, "label": None, "keys": keys, "keys_left_out": 3, "age": 1.5, "expires_in": None,
                                          "under_check": None, **more}
    purgatory = lambda name, keys: {
        "name": name,
        "stats": {"parked": parked, "watched": 14 * times, "parked_total": parked + (3 * ended + 7) * times, "completed": ended * times,
                  "expired": ended * times, "cancelled": ended * times, "taken": 7 * times, "cancelled_by_shutdown": 0, "cancelled_by_drop": 0, "cancelled_by_panic": 0, "ended_at_once": 2, "panics": 1,
                  "checks": 5, "events": 6, "missed_events": 0, "refused_no_keys": 0, "refused_closed": 2, "refused_full": 1, "refused_too_heavy": 0, "refused_too_many_watermarks": 0,
                  "callbacks_waiting": 0, "deferred": 0},
        "max_parked": 1000 * times,
        "labels": [] if idle else [{"label": HOSTILE, "parked": 8}, {"label": "fetch", "parked": 4}],
        "lagging": None,
        "key_count": 0 if idle else len(keys),
        "busiest": [] if idle else [{"key": key, "waiters": (10 - n) * times} for n, key in enumerate(keys)],
        "oldest": [] if idle else [operation("1.2.3", keys, expires_in=.5, label="fetch"), operation("4.5.6", keys[:1], expires_in=.25, under_check=12.0)],
        "under_check": [] if idle else [operation("4.5.6", keys[:1], under_check=12.0)],
        "minute": {"window_s": min(60.4, at_s), "points": minute(at_s, ended * times, parked), "waits": {
            "completed": waits, "expired": expired or histogram(), "cancelled": histogram(),
            "lateness": histogram(b24=ended if late is None else late)}}}
    unused = purgatory("unused", [])
    unused["stats"] = {name: 0 for name in unused["stats"]}
    unused |= {"max_parked": None, "labels": [], "key_count": 0, "busiest": [], "oldest": [], "under_check": [],
               "minute": {"window_s": 0.0, "points": minute(at_s, 0, 0)[-1:],
                          "waits": {name: histogram() for name in ("completed", "expired", "cancelled", "lateness")}}}
    unused_timer = timer("unused")
    unused_timer["stats"] |= {"pending": 0, "fired": 0, "cancelled": 0}
    sets = purgatory(HOSTILE, [])
    member = lambda name, lags: {"member": name, "value": str(2**64 - 1), "lags": lags}
    sets["lagging"] = [] if idle else [{"group": HOSTILE, "watermark": "40", "members_left_out": 3,
                                        "members": [member(HOSTILE, 5.0), member("follower", 0.0)]}]
    return {"at_s": at_s,
            "timers": [timer("one"), timer(HOSTILE), unused_timer],
            "purgatories": [purgatory("orders", ['"a"', HOSTILE, "x" * 200]), sets, unused]}


def minute(at_s, ended, parked):
    """The points of the minute before, which end with these totals: a quarter of `ended` had ended at half of it."""
    point = lambda ago_s, parked, ended: {"at_s": at_s - ago_s, "parked": parked, "completed": ended, "expired": ended, "cancelled": ended}
    return [point(60.4, 8, 0), point(30.2, 8, ended // 4), point(1.0, parked, ended), point(0.0, parked, ended)]


def finds_its_way(browser):
    """A sentence says what is seen; a link leads to each section."""
    lead = browser.run("const lead = document.querySelector('.lead'); return lead.checkVisibility() ? lead.innerText : ''")
    check(len(lead) > 80, "no word to a stranger")
    links = browser.run("return [...document.querySelectorAll('#places a')].filter((e) => e.checkVisibility()).map((e) => [e.innerText, e.getAttribute('href')])")
    titles = browser.run("return [...document.querySelectorAll('section h2')].map((e) => e.textContent)")
    check(len(links) == 6 and all(text.startswith(title) for (text, _), title in zip(links, titles)), f"{links} to {titles}")
    check(links[0][0].endswith("purgatory, 12 parked") and links[3][0].endswith("timer, 12 pending"), f"{links}: timers come last")
    browser.width(320, 640, True)
    for at, title in enumerate(titles):
        browser.run("document.querySelectorAll('#places a')[arguments[0]].click()", at)
        seen = lambda: browser.run("const box = document.querySelectorAll('h2')[arguments[0]].getBoundingClientRect();"
                                   "return box.top >= 0 && box.bottom <= innerHeight", at)
        until(f"the link leads to {title}", seen)
    browser.run("history.replaceState(null, '', location.pathname); scrollTo(0, 0)")
    browser.width(1280, 900)


def folded(browser):
    """The titles of the sections that are folded, and how many lists are."""
    return tuple(browser.run("""
        const hidden = (selector) => [...document.querySelectorAll(selector)].filter((e) => !e.checkVisibility());
        const sections = hidden('.unfolded').map((e) => e.closest('section'));
        const said = sections.filter((e) => e.querySelector('.folded').checkVisibility());
        const lists = hidden('.keys-card, .oldest-card').filter((e) => !sections.includes(e.closest('section')));
        return [said.map((e) => e.querySelector('h2').firstChild.data), lists.length];
    """))


def with_made_up_events(browser, shots):
    fixture = Fixture()
    browser.go("about:blank")
    browser.requested()  # the browser's own first page is left behind
    browser.go(f"http://{fixture.host}/live")
    until("the page says that it connects", lambda: browser.run(TEXT, "#status") == "connecting")
    fixture.set(made_up(100.0, 0, histogram()))
    until("the page is live", lambda: browser.run(TEXT, "#status") == "live")
    # The first event brings the minute before it: in its first half 8 were parked, so there is a line.
    until("the minute before the page was opened is drawn", lambda: browser.run(LINE_AT, ".parked-chart", 0.25))
    said("made-up events: a page that was just opened shows the minute before")
    # Two seconds later a hundred of each have ended; of the waits 50 in 2.5 to 5 ms, 50 in 0.5 to 1 s.
    # What expired waited 1.001 s in the mean, in a bucket that ends at 2.5 s.
    fixture.set(made_up(102.0, 100, histogram(b8=50, b15=50), histogram(b16=(100, 1.001))))
    rate = lambda: browser.run("return document.querySelectorAll('.tile')[2]?.innerText || ''")
    until("100 in 2 s are 50 a second", lambda: re.search(r"completed\s+50 /s\s+100$", rate()))
    waits = browser.run(TEXT, ".waits")
    check(re.search(r"completed\s+3\.75 ms\s+750 ms\s+750 ms\s+100\n", waits), f"percentiles: {waits}")
    check(re.search(r"expired\s+1\.00 s\s+1\.00 s\s+1\.00 s\s+100\n", waits), f"a timeout of 1 s: {waits}")
    check(re.search(r"lateness\s+> 10 min\s+> 10 min\s+> 10 min\s+100$", waits), f"percentiles: {waits}")
    spans = set(browser.run("return [...document.querySelectorAll('section')[0].querySelectorAll('.span')].map((e) => e.textContent)"))
    check(spans == {"last 60 s"}, f"charts and percentiles are of several times: {spans}")
    parked = browser.run(TEXT, ".tile")
    check(re.search(r"12 of 1,000\s+oldest 1\.50 s of 2\.00 s$", parked), f"the bound and the timeout: {parked}")
    oldest = browser.run(TEXT, ".oldest tbody tr")
    check("fetch 1.2.3" in oldest, f"its label: {oldest}")
    lagging = browser.run("return [...document.querySelectorAll('section')[1].querySelectorAll('.lagging tbody tr')].map((e) => e.innerText)")
    check(len(lagging) == 2 and HOSTILE in lagging[0] and "5.00 s" in lagging[0] and "and 3 more" in lagging[1], f"who lags: {lagging}")
    check(not browser.run("return document.querySelector('.lagging-card').checkVisibility()"), "orders are no replica sets")
    timers = browser.run("return [...document.querySelectorAll('.timer details')].map((e) => [e.open, e.textContent])")
    check(len(timers) == 3 and all(not opened and "cancelled" not in text for opened, text in timers), f"folded timers: {timers}")
    numbers = dict(browser.run(NUMBERS))
    check(numbers['timer_cancelled_total{timer="one"}'] == 5, f"{numbers}")
    check(numbers['purgatory_max_parked{purgatory="orders"}'] == 1000, f"{numbers}")
    check(numbers['purgatory_parked_by_label{purgatory="orders",label="fetch"}'] == 4, f"{numbers}")
    check(numbers['purgatory_parked_total{purgatory="orders"}'] == 319, f"{numbers}")
    check(numbers['purgatory_taken_total{purgatory="orders"}'] == 7, f"{numbers}")
    check(numbers['purgatory_refused_total{purgatory="orders"}'] == 3, f"{numbers}")
    check(browser.run("return document.querySelectorAll('section').length") == 6, "a section each")
    check(browser.run("return document.querySelectorAll('.warn')[0].innerText").startswith("under check for 12.0 s"), "a stuck check")
    said("made-up events: rates, percentiles and totals are right")

    check(HOSTILE in browser.run("return document.querySelectorAll('.bars code')[1].textContent"), "the key is not there as text")
    check(HOSTILE in browser.run("return document.querySelectorAll('h2')[1].textContent"), "the name is not there as text")
    check(browser.run("return document.querySelectorAll('main img, main script').length") == 0, "a key became markup")
    check(browser.run("return document.title") == "purgatory live", "a key's script ran")
    looks_right(browser, shots, "made-up")
    finds_its_way(browser)
    clean(browser, [fixture.host])
    said("made-up events: hostile keys are text; readable in light and dark, on a phone too")

    # A billion of each, and nothing parked any more: what is empty folds after a while.
    fixture.set(made_up(104.0, 200, histogram(b8=50, b15=50), times=12345678))
    until("large numbers", lambda: "148,148,136" in browser.run(TEXT, ".tile"))
    looks_right(browser, shots, "large")
    check(folded(browser) == (["unused", "unused"], 0), f"folded: {folded(browser)}")
    fixture.set(made_up(106.0, 204, histogram(b8=50, b15=50), idle=True, times=12345678))
    until("an end", lambda: browser.run(TEXT, ".tile .big").startswith("0 of"))
    check(folded(browser)[1] == 0, "a list that was empty for a moment is folded")
    fixture.set(made_up(112.0, 204, histogram(), idle=True, times=12345678, late=0))
    until("what was empty for a while is folded", lambda: folded(browser) == (["unused", "unused"], 4))
    until("nothing ended in a while", lambda: browser.run("return document.querySelector('.no-waits').checkVisibility()"))
    fixture.set(made_up(114.0, 204, histogram(b8=50, b15=50), times=12345678))
    until("and unfolded when something comes", lambda: folded(browser) == (["unused", "unused"], 0))
    said("made-up events: large numbers fit 320 pixels; what is empty is folded")

    fixture.set(mode="silent")
    until("silence is noticed", lambda: "Connection lost" in (browser.run(BANNER) or ""))
    fixture.set(mode="serve")
    until("and its end", lambda: "Connected again after" in (browser.run(BANNER) or ""))
    fixture.set(mode="refuse")
    until("an error is noticed", lambda: "Connection lost" in (browser.run(BANNER) or ""))
    browser.shot(shots / "lost.png")
    fixture.set(made_up(3.0, 1, histogram()), mode="serve")
    until("a program that started anew is noticed", lambda: "started anew" in (browser.run(BANNER) or ""))
    until("its numbers are shown", lambda: dict(browser.run(NUMBERS)).get('purgatory_parked_total{purgatory="orders"}') == 22)
    until("the banner goes", lambda: browser.run(BANNER) is None)
    # The first form of the next program has another name, and that of the one after it no bound.
    for at_s, max_parked, shown in ((2.0, 70, "12 of 70"), (1.0, None, "12")):
        another = made_up(at_s, 1, histogram())
        another["purgatories"][0] |= {"name": "fetches", "max_parked": max_parked}
        fixture.set(another)
        until("its bound is shown", lambda: browser.run(TEXT, ".tile .big") == shown)
        check(browser.run("return document.querySelector('h2').textContent") == "fetches purgatory", "its title")
    errors = [line for line in browser.console() if "503" not in line]
    check(not errors, f"on the console: {errors}")
    browser.requested()
    said("made-up events: silence, an error and another program are noticed, and that it is back")

    # Each event comes later than a new page waits for one.
    pause_s = 3.7
    fixture.set(mode="slow")
    threading.Thread(target=fixture.send_slowly, args=(4.0, pause_s), daemon=True).start()
    browser.go(f"http://{fixture.host}/live")
    until("the pause between events is known", lambda: browser.run("return link.longest") > pause_s - 0.1)
    until("no connection is lost any more", lambda: browser.run(BANNER) is None)
    fixture.set(mode="serve")
    browser.requested()
    said("made-up events: slow events are no lost connection for long")


# ---- acks_all ----------------------------------------------------------------------------------


class Program:
    """acks_all, and what it has said."""

    def __init__(self, program, *arguments):
        self.process = subprocess.Popen([program, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.out, self.err = [], []
        for pipe, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err)):
            threading.Thread(target=lambda pipe=pipe, lines=lines: lines.extend(pipe), daemon=True).start()
        self.metrics = until("the address of the metrics", lambda: self.address("metrics: "))
        self.page = until("the address of the page", lambda: self.address("live page: "))
        self.host = urllib.parse.urlsplit(self.page).netloc

    def address(self, start):
        check(self.process.poll() is None, f"acks_all has ended: {self.err}")
        return next((line[len(start):].strip() for line in list(self.err) if line.startswith(start)), None)

    def scrape(self):
        """Every sample, by its name with labels."""
        with urllib.request.urlopen(self.metrics, timeout=10) as answer:
            check(answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), "the type of /metrics")
            lines = answer.read().decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
        return {name: float(value) for name, value in samples}

    def end(self, how):
        begun = time.monotonic()
        self.process.send_signal(how)
        status = self.process.wait(10)
        return status, time.monotonic() - begun


def agree(browser, program):
    """The page's numbers that differ from those of /metrics, which are not at rest then; none when all agree."""
    page, metrics = browser.run(NUMBERS), program.scrape()
    check(len(page) > 20, f"only {len(page)} numbers have a metric")
    differ = []
    for name, value in page:
        sums = [metric for metric in metrics if metric == name or metric.startswith(name[:-1] + ",")]
        if not sums or sum(metrics[metric] for metric in sums) != value:
            differ.append((name, value, {metric: metrics[metric] for metric in sums}))
    return differ


def with_acks_all(browser, shots, path):
    # The second follower stalls, so some wait on the wheel, cascade and expire.
    # Fewer than a million waits, of which all are handed over at a scrape.
    stalled = ["--stall-from", "1s", "--stall-for", "3s", "--timeout", "800ms"]
    program = Program(path, "--seconds", "5", "--rate", "150000", *stalled, "--linger", "60s")
    browser.go(program.page)
    until("the page is live", lambda: browser.run(TEXT, "#status") == "live")
    until("every canvas has something on it", lambda: all(colours > 1 for colours, _ in browser.run(PIXELS)))
    first, pixels = dict(browser.run(NUMBERS)), browser.run(PIXELS)
    name = 'purgatory_parked_total{purgatory="produce"}'
    until("its numbers move", lambda: dict(browser.run(NUMBERS))[name] > first[name])
    until("its pictures move", lambda: all(a[1] != b[1] for a, b in zip(pixels, browser.run(PIXELS))))
    until("keys and operations are listed",
          lambda: browser.run("return document.querySelectorAll('.bars li, .oldest tbody tr').length") >= 10)
    keys = browser.run("return [...document.querySelectorAll('.bars code')].map((e) => e.textContent)")
    check(keys and all(re.fullmatch("partition [0-7]", key) for key in keys), f"keys by their Display: {keys}")
    expired = 'purgatory_ended_total{purgatory="produce",outcome="expired"}'
    until("some expire", lambda: dict(browser.run(NUMBERS))[expired] > 0)
    until("what waits is on the wheel", lambda: dict(browser.run(NUMBERS))['timer_pending{timer="shared"}'] > 100)
    check(program.process.poll() is None and not program.out, "the run is over: nothing was seen of it")
    looks_right(browser, shots, "running")
    said("acks_all: the page draws and moves; readable in light and dark, on a phone too")

    until("the table", lambda: any("lost" in line for line in list(program.out)))
    differ = until("the page agrees with /metrics at rest", lambda: not agree(browser, program) or None)
    numbers, metrics = dict(browser.run(NUMBERS)), program.scrape()
    ended = sum(value for key, value in numbers.items() if key.startswith("purgatory_ended_total"))
    check(numbers[name] == ended > 0 and numbers['purgatory_parked{purgatory="produce"}'] == 0, f"not all have ended: {numbers}")
    timed = sum(value for key, value in metrics.items() if key.startswith("purgatory_wait_seconds_count"))
    completed = numbers['purgatory_ended_total{purgatory="produce",outcome="completed"}']
    check(timed == completed > 0, f"{timed} waits were timed, {completed} operations have completed")
    looks_right(browser, shots, "rest")
    clean(browser, [program.host])
    said(f"acks_all: at rest {len(numbers)} numbers agree with /metrics, parked {numbers[name]:.0f}, expired {numbers[expired]:.0f}")

    status, took_s = program.end(signal.SIGINT)
    check(status == 0 and took_s < 2, f"Ctrl-C with a page that listens: status {status} after {took_s:.1f} s")
    until("the page says that the connection is lost", lambda: "Connection lost" in (browser.run(BANNER) or ""))
    again = Program(path, "--seconds", "60", "--metrics-addr", program.host)
    until("the page says that it is back", lambda: "started anew" in (browser.run(BANNER) or ""))
    again.process.kill()
    until("a kill is noticed", lambda: "Connection lost" in (browser.run(BANNER) or ""))
    again.process.wait(10)
    errors = [line for line in browser.console() if "net::ERR_" not in line]
    check(not errors, f"on the console: {errors}")
    said(f"acks_all: Ctrl-C ended it in {took_s:.2f} s; its end, its return and a kill are noticed")


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="live-page-"))
    shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else work / "shots"
    shots.mkdir(parents=True, exist_ok=True)
    browser = None
    try:
        policy()
        browser = Browser(work)
        said("a browser is there")
        with_made_up_events(browser, shots)
        with_acks_all(browser, shots, sys.argv[1])
    except Failed as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        if browser:
            with contextlib.suppress(Exception):
                browser.shot(shots / "failed.png")
                print(browser.console(), file=sys.stderr)
        return 1
    finally:
        if browser:
            browser.close()
    said(f"live page check: passed; screenshots in {shots}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
