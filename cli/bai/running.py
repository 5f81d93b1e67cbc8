"""One run of code in a session: its output as it comes, its questions, its exit code."""

from __future__ import annotations

import base64
import getpass
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from bai.sdk.call import Problem, Unreachable
from bai.sdk.client import Client
from bai.sockets import Closed, Reconnecting, messages, opened
from bai.state import tell

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

FINAL = ("FINISHED", "LOST", "CANCELLED")
_PYTHON = (
    "import runpy, sys, os\nsys.argv = {arguments!r}\nrunpy.run_path(os.path.expanduser({path!r}), run_name='__main__')"
)
_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}


class Detached(Exception):
    """The person leaves, and the run goes on."""


def order_for_file(name: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Return the order that runs a file in the home folder: Python in the interpreter, else as a command."""
    path = f"~/{PurePosixPath(name)}"
    if name.endswith(".py"):
        return {"code": _PYTHON.format(arguments=[name, *arguments], path=path)}
    words = " ".join(shlex.quote(one) for one in arguments)
    return {"mode": "batch", "options": {"exec": f"/bin/bash ~/{shlex.quote(name)} {words}".strip()}}


@dataclass
class CodeRun:
    """``order``: the fields of a run. ``plots``: the folder for its pictures, None to name them only."""

    portal: Client
    session_id: str
    order: Mapping[str, Any]
    plots: Path | None = None

    def __post_init__(self) -> None:
        self.run_id, self._offset, self._pictures, self._was_sent = uuid4().hex, 0, 0, False
        self._answered = -1  # the offset of the question that has its answer
        self._over: int | None = None

    def follow(self) -> int:
        """Write the output until the run ends; returns its exit code. Raises Problem, Unreachable and Detached."""
        tries = Reconnecting()
        while self._over is None:
            try:
                with opened(self.portal, f"/ws/sessions/{self.session_id}/runs/") as socket:
                    self._converse(socket, tries)
            except (Closed, Unreachable) as error:
                tries.failed(error)
        return self._over

    def _converse(self, socket: ClientConnection, tries: Reconnecting) -> None:
        known = {self.run_id: self._offset}
        _send(socket, {"type": "attach", "after": known})
        if not self._was_sent:  # the same run_id again is the same run
            _send(socket, {"type": "run", "id": "run", "run_id": self.run_id, **self.order})
        for message in self._interruptible(socket):
            tries.succeeded()
            if message.get("type") == "answer" and message.get("id") == "run":
                self._accept(message)
            elif message.get("type") == "run" and message.get("run_id") == self.run_id:
                self._was_sent = True
                self._take(message, socket)
            if self._over is not None:
                return

    def _interruptible(self, socket: ClientConnection) -> Any:
        """Yield messages; Ctrl-C asks what to do, and goes on here."""
        stream = messages(socket)
        while True:
            try:
                yield next(stream)
            except KeyboardInterrupt:
                stream = messages(socket)
                if (
                    sys.stdin.isatty()
                    and click.prompt("Leave it [r]unning, or [e]nd it?", default="e", err=True) == "r"
                ):
                    raise Detached from None
                _send(socket, {"type": "interrupt", "run_id": self.run_id})

    def _accept(self, answer: Mapping[str, Any]) -> None:
        self._was_sent = True
        if error := answer.get("error"):
            if error.get("is_passing"):
                self._was_sent = False
                raise Closed(None, error["message"])
            raise Problem(409, {"code": error["code"], "detail": error["message"]})

    def _take(self, news: Mapping[str, Any], socket: ClientConnection) -> None:
        for item in news.get("items") or ():
            self._write(item)
        self._offset = int(news.get("offset") or self._offset)
        if news["state"] == "WAITING_INPUT" and self._offset != self._answered:
            self._answer(str(news.get("prompt") or ""), bool(news.get("password")), socket)
        if news["state"] in FINAL and news["offset"] >= news["end"]:
            if news.get("reason"):
                tell(f"({news['reason']})")
            code = news.get("exit_code")
            self._over = int(code) if code is not None else 1

    def _answer(self, prompt: str, is_secret: bool, socket: ClientConnection) -> None:
        self._answered = self._offset
        try:
            text = getpass.getpass(prompt) if is_secret and sys.stdin.isatty() else _line(prompt)
        except EOFError:
            _send(socket, {"type": "interrupt", "run_id": self.run_id})
            return
        _send(socket, {"type": "input", "id": "input", "run_id": self.run_id, "text": text})

    def _write(self, item: Mapping[str, Any]) -> None:
        kind = item.get("type")
        if kind in ("stdout", "stderr"):
            click.echo(item["text"], nl=False, err=kind == "stderr")
        elif kind == "media" and item["mime"] == "text/plain":
            click.echo(item["data"])
        elif kind == "media":
            tell(self._picture(item["mime"], item["data"]))
        elif kind == "error":
            click.echo(str(item.get("traceback") or f"{item.get('name')}: {item.get('value')}").rstrip("\n"), err=True)
        elif kind == "gap":
            tell(f"({item.get('bytes', 'some')} bytes of output were not kept)")
        elif kind == "log":
            tell(f"({item.get('text', '')})")

    def _picture(self, mime: str, data: str) -> str:
        if self.plots is None:
            return f"({mime}: --plots FOLDER keeps it)"
        self._pictures += 1
        path = self.plots / f"plot-{self._pictures}.{_ENDINGS.get(mime, 'txt')}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if mime == "image/svg+xml" else base64.b64decode(data))
        return f"({mime}: {path})"


def _line(prompt: str) -> str:
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _send(socket: ClientConnection, message: Mapping[str, Any]) -> None:
    socket.send(json.dumps(message))
