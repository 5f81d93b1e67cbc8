"""Chromium with nobody listening in: it is told what to do, but not asked to report what its pages send and receive.

Playwright has the browser copy each frame of each websocket to it, which costs more than showing what is in them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

_CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--no-first-run", "--remote-debugging-port=0", "--window-size=1280,800",
]  # fmt: skip
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_KEYS = {
    "Enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
}


class BarePage:
    """One page of such a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0

    def before_scripts(self, script: str) -> None:
        """Run a script in each page that is opened, before the page's own."""
        self._ask("Page.enable")
        self._ask("Page.addScriptToEvaluateOnNewDocument", source=script)

    def go(self, address: str) -> None:
        """Open an address and wait until its scripts have run."""
        self.evaluate("window.isLeft = true")
        self._ask("Page.navigate", url=address)
        self.wait("!window.isLeft && document.readyState === 'complete'")

    def sign_in(self, address: str, email: str, password: str) -> None:
        """Sign in to the portal at this address, as a person does."""
        self.go(f"{address}/login/")
        for name, value in (("username", email), ("password", password)):
            self.evaluate(f"document.querySelector('[name={name}]').value = {json.dumps(value)}")
        self.evaluate("window.isLeft = true; document.querySelector('[name=password]').form.submit()")
        self.wait("!window.isLeft && document.querySelector('h1')?.textContent === 'Sessions'")

    def without_cache(self) -> None:
        """Load everything anew from now on."""
        self._ask("Network.enable")
        self._ask("Network.setCacheDisabled", cacheDisabled=True)

    def evaluate(self, expression: str) -> Any:
        """Return what an expression is in the page; one that is a promise is awaited."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Return when an expression is true in the page; raises TimeoutError when it takes too long."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_PATIENCE_SECONDS} s in vain for {condition}")
            time.sleep(_LOOK_SECONDS)

    def type(self, text: str) -> None:
        """Put text where the focus is."""
        self._ask("Input.insertText", text=text)

    def press(self, name: str) -> None:
        """Press and release a key."""
        self._ask("Input.dispatchKeyEvent", type="keyDown", **_KEYS[name])
        self._ask("Input.dispatchKeyEvent", type="keyUp", **{**_KEYS[name], "text": ""})

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(_PATIENCE_SECONDS))
            if answer.get("id") == self._last:
                break
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found


@contextlib.contextmanager
def bare_page() -> Iterator[BarePage]:
    """Yield a page of a browser of its own, which ends with it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = subprocess.Popen(
            [_CHROMIUM, *_ARGUMENTS, f"--user-data-dir={folder}", "about:blank"], stderr=subprocess.DEVNULL
        )
        try:
            with connect(_address(Path(folder)), max_size=None, compression=None) as socket:
                yield BarePage(socket)
        finally:
            browser.terminate()
            browser.wait(10)


def _address(folder: Path) -> str:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, StopIteration, IndexError):
            port = (folder / "DevToolsActivePort").read_text().split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = json.load(answer)
            return str(next(each["webSocketDebuggerUrl"] for each in pages if each["type"] == "page"))
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError(f"{_CHROMIUM} did not open its door within {_PATIENCE_SECONDS} s")
