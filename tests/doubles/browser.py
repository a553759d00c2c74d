"""A headless Chromium over the pipe of its DevTools protocol: no driver, no port, no package."""

import json
import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# the browser reads commands from descriptor 3 and answers on 4; moved out of the way first, lest one hides the other
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def installed() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of one browser, closed with it."""

    def __init__(self, program, profile):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        flags = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe"
            " --no-first-run --disable-background-networking"
        ).split()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START,
                str(theirs_in),
                str(theirs_out),
                program,
                *flags,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
        self._rest, self._number, self._session = b"", 0, None
        self.errors, self.requests = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session = None
        self.call("Browser.close")
        self._in.close()
        self._out.close()
        self.process.wait(timeout=30)

    def call(self, method, **parameters):
        """Send one command and wait for its answer; errors and requests of the page are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in {"Runtime.exceptionThrown", "Log.entryAdded"}:
                self.errors.append(answer["params"])
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path):
        self.call("Page.navigate", url=path.as_uri())
        self.run(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def click(self, selector):
        x, y = self.run(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])"
            f"((item => (item.scrollIntoView({{block: 'center'}}), item.getBoundingClientRect()))"
            f"(document.querySelector({json.dumps(selector)})))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def count(self, selector):
        return self.run(f"document.querySelectorAll({json.dumps(selector)}).length")

    def _read(self):
        while b"\0" not in self._rest:
            chunk = os.read(self._in.fileno(), 1 << 16)
            assert chunk, "the browser went away"
            self._rest += chunk
        line, self._rest = self._rest.split(b"\0", 1)
        return json.loads(line)
