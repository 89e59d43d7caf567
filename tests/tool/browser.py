# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium through its debugging pipe: messages of JSON, each ended by a zero byte."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

DEADLINE = 120
FLAGS = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars "
         "--remote-debugging-pipe").split()


def find():
    """The path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page. Collects errors of the console and every address the page asks for."""

    def __init__(self, width=1200, height=900):
        self.profile = tempfile.mkdtemp()
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def descriptors():
            # Numbers above 4 first: the ends may have the numbers 3 and 4 themselves.
            low, high = os.dup2(to_read, 20), os.dup2(to_write, 21)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self.process = subprocess.Popen(
            [find(), *FLAGS, "--user-data-dir=" + self.profile, f"--window-size={width},{height}", "about:blank"],
            preexec_fn=descriptors, close_fds=False, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.bytes = b""
        self.number = 0
        self.session = None
        self.errors = []
        self.addresses = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(domain + ".enable")
        self.resize(width, height)

    def close(self):
        """Ends the browser and removes its profile."""
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _receive(self, deadline):
        while b"\0" not in self.bytes:
            if not select.select([self.back], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.back, 1 << 20)
            if not got:
                raise EOFError("the browser has ended")
            self.bytes += got
        message, self.bytes = self.bytes.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.addresses.append(params["request"]["url"])

    def call(self, method, **params):
        """Calls a method of the protocol and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE
        while True:
            got = self._receive(deadline)
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self._note(got)

    def open(self, path):
        """Opens a file and waits until its scripts have run."""
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        deadline = time.monotonic() + DEADLINE
        while self.value("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > deadline:
                raise TimeoutError("the page does not load")
            time.sleep(0.02)

    def value(self, expression):
        """The value of an expression of JavaScript."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{expression}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def until(self, expression):
        """Waits until an expression is true: for what the page does a frame later."""
        deadline = time.monotonic() + DEADLINE
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise TimeoutError("never true: " + expression)
            time.sleep(0.02)

    def resize(self, width, height):
        """Sets the size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        """Makes the system prefer "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mouse(self, kind, x, y, **more):
        """An event of the mouse: Moved, Pressed, Released or Wheel."""
        self.call("Input.dispatchMouseEvent", type="mouse" + kind, x=x, y=y, **more)

    def click(self, x, y):
        """Presses and releases the left button."""
        for kind in ("Pressed", "Released"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def picture(self, path, whole=True):
        """Writes a picture of the page as PNG."""
        params = {}
        if whole:
            content = self.call("Page.getLayoutMetrics")["cssContentSize"]
            params = {"captureBeyondViewport": True,
                      "clip": {"x": 0, "y": 0, "width": content["width"], "height": content["height"], "scale": 1}}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **params)["data"]))
