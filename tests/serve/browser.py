"""Headless Chromium over its debugging pipe, with Python's standard library: what the tests of the web page need.

Browser() starts it with a profile of its own; .page is the one page:
  open(url, width, height, dark)   a fresh page of this size (below 600: a phone with touch)
  run(expression)                  its value (promises are waited for); an exception raises
  until(expression, what)          runs it until it is true
  type(text), key(name)            as a keyboard does
  screenshot(path)
  .problems                        exceptions, errors on the console and requests to other hosts, since open"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIMIT = 60.0  # a hang, not a time that is measured
KEYS = {"Enter": ("\r", 13), "Escape": (None, 27), "ArrowUp": (None, 38), "ArrowDown": (None, 40), "Tab": (None, 9)}


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def connect():  # Chromium reads from 3 and writes to 4
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        env = dict(os.environ, HOME=self.folder.name, XDG_CONFIG_HOME=self.folder.name, XDG_CACHE_HOME=self.folder.name)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "LD_LIBRARY_PATH", "LD_PRELOAD"):
            env.pop(name, None)
        flags = ["--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
                 "--hide-scrollbars", "--mute-audio", "--user-data-dir=" + self.folder.name]
        self.log = open(os.path.join(self.folder.name, "log"), "wb")
        self.process = subprocess.Popen([find(), *flags, "about:blank"], preexec_fn=connect, close_fds=False, env=env, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.session, self.target, self.problems, self.url = 0, b"", None, None, [], ""

    def __enter__(self):
        return self

    def __exit__(self, *args):
        try:
            self.call("Browser.close", browser=True)
        except (OSError, EOFError, TimeoutError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.log.close()
        self.folder.cleanup()

    def receive(self, until):
        """The next message."""
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("chromium does not answer")
            piece = os.read(self.back, 1 << 20)
            if not piece:
                with open(self.log.name, errors="replace") as f:
                    raise EOFError("chromium has ended: " + f.read()[-2000:])
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def notice(self, message):
        """What a page reports by itself."""
        method, p = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.problems.append(d.get("exception", {}).get("description", d["text"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.problems.append("%s %s" % (p["entry"]["text"], p["entry"].get("url", "")))
        elif method == "Network.requestWillBeSent":
            url = p["request"]["url"]
            if not url.startswith((self.url, "data:", "blob:")):
                self.problems.append("a request to " + url)

    def call(self, method, browser=False, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session and not browser:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + LIMIT
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.notice(answer)

    def open(self, url, width=1280, height=800, dark=False):
        if self.target:
            self.call("Target.closeTarget", browser=True, targetId=self.target)
        self.session, self.url, self.problems = None, url, []
        self.target = self.call("Target.createTarget", browser=True, url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", browser=True, targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'", "the page is loaded")

    def run(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in r:
            d = r["exceptionDetails"]
            raise AssertionError("%s: %s" % (expression[:300], d.get("exception", {}).get("description", d["text"])))
        return r["result"].get("value")

    def until(self, expression, what=None):
        end = time.monotonic() + LIMIT
        while not self.run("!!(%s)" % expression):
            assert time.monotonic() < end, "never happened: " + (what or expression)
            time.sleep(0.02)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, modifiers=0):
        text, code = KEYS.get(name, (name, ord(name[0].upper())))
        event = {"key": name, "code": name if name in KEYS else "Key" + name.upper(), "windowsVirtualKeyCode": code, "modifiers": modifiers}
        if text and not modifiers:
            event["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        event.pop("text", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
