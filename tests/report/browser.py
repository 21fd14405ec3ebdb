"""A real browser for tests: headless Chromium, spoken to over two pipes in its own protocol. No driver, no network."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip


def find_chromium() -> str | None:
    """CONSILIENCE_CHROMIUM, or the first that is installed (Debian: apt-get install chromium)."""
    named = os.environ.get("CONSILIENCE_CHROMIUM")
    return named or next((found for n in NAMES if (found := shutil.which(n))), None)


class Browser:
    """One tab. Console errors, exceptions and every address asked for are kept."""

    def __init__(self, to: int, come: int) -> None:
        self.to, self.come, self.buffer = to, come, b""
        self.number = 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        wanted = self.number
        while True:
            found = self._next(PATIENCE)
            assert found is not None, f"the browser did not answer {method} in {PATIENCE} s"
            if found.get("id") == wanted:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]

    def _next(self, patience: float) -> dict[str, Any] | None:
        """The next message, events noted on the way; None if none came in time."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.come], [], [], patience)
            if not ready:
                return None
            part = os.read(self.come, 1 << 20)
            assert part, "the browser went away"
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", params)))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str([a.get("value", a.get("description")) for a in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def size(self, width: int, height: int, *, mobile: bool = False) -> None:
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **sizes)

    def scheme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, address: str) -> None:
        self.loaded = False
        self.call("Page.navigate", url=address)
        until = time.monotonic() + PATIENCE
        while not self.loaded:
            assert time.monotonic() < until, f"{address} did not load in {PATIENCE} s"
            self._next(1.0)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)  # fmt: skip
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        until = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < until, f"not within {PATIENCE} s: {condition}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, " ": 32, "Home": 36, "ArrowDown": 40}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            typed = text if kind == "keyDown" else ""
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=codes[key],
                text=typed,
            )

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
        return path


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """A browser with a profile of its own, ended afterwards."""
    down_read, down_write = os.pipe()
    up_read, up_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def wire() -> None:
            # Chromium reads commands on 3 and writes to 4; copies first, as 3 and 4 may be taken by our own ends.
            one, two = os.dup(down_read), os.dup(up_write)
            os.dup2(one, 3)
            os.dup2(two, 4)

        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(3, 4), preexec_fn=wire, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(down_read)
        os.close(up_write)
        try:
            yield Browser(down_write, up_read)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(down_write)
            os.close(up_read)
