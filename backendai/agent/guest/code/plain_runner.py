"""Python without Jupyter: this process runs the code itself, in one namespace."""

from __future__ import annotations

import ast
import base64
import builtins
import contextlib
import getpass
import io
import linecache
import os
import platform
import rlcompleter
import signal
import sys
import traceback
import types
from typing import Any

from backendai.agent.guest.home.items import LARGEST_TEXT
from backendai.agent.guest.link.channel import Channel
from backendai.agent.guest.processes import start_folder

INTERRUPTED = 130
_RICH = (("_repr_html_", "html"), ("_repr_svg_", "image/svg+xml"), ("_repr_png_", "image/png"),
         ("_repr_jpeg_", "image/jpeg"))  # fmt: skip


class PlainRunner:
    """Executes orders on the main thread, which receives SIGINT."""

    def __init__(self, channel: Channel, note: str) -> None:
        self._channel, self._note, self._count = channel, note, 0
        self._orders: list[dict[str, Any]] = []
        self._module = types.ModuleType("__main__")
        self._own, self._is_running = os.getpid(), False

    def run(self) -> None:
        """Serve until the guest ends."""
        sys.modules["__main__"] = self._module
        self._module.__dict__["__builtins__"] = builtins
        sys.argv = [""]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
        with contextlib.suppress(OSError):
            os.chdir(start_folder())
        os.environ.setdefault("MPLBACKEND", "Agg")
        builtins.input, getpass.getpass = self._input, self._password
        sys.displayhook = self._show
        signal.signal(signal.SIGINT, self._interrupt)
        about = {"language": "python3", "title": f"Python {platform.python_version()} (plain)", "kind": "plain"}
        self._channel.say(ready={**about, "interrupts_by": "signal", "note": self._note})
        while (order := self._next()) is not None:
            if order.get("do") == "run":
                code = self._execute(str(order["code"]))
                if os.getpid() != self._own:
                    os._exit(0)  # a child process that the code has forked
                self._channel.say(done=order.get("run_id"), exit_code=code)
            elif order.get("do") == "complete":
                self._complete(order)
            elif order.get("do") == "end":
                return

    def _next(self) -> dict[str, Any] | None:
        while not self._orders:
            heard = self._channel.hear()
            if heard is None:
                return None
            self._orders += heard
        return self._orders.pop(0)

    def _interrupt(self, number: int, frame: Any) -> None:
        if self._is_running:
            raise KeyboardInterrupt

    def _execute(self, code: str) -> int:
        self._count += 1
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        try:
            self._is_running = True
            try:
                self._run_parts(code, name)
            finally:
                self._is_running = False
                self._show_figures()
                sys.stdout.flush()
                sys.stderr.flush()
        except SystemExit as end:
            return self._exit_code(end.code)
        except BaseException as error:  # users' code can raise anything; the runner goes on
            return self._tell(error)
        return 0

    def _run_parts(self, code: str, name: str) -> None:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        space = self._module.__dict__
        exec(compile(tree, name, "exec"), space)  # noqa: S102 - that is what it is for
        if isinstance(last, ast.Expr):
            sys.displayhook(eval(compile(ast.Expression(last.value), name, "eval"), space))  # noqa: S307

    def _exit_code(self, code: Any) -> int:
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 255
        self._channel.show({"type": "stderr", "text": f"{code}\n"})
        return 1

    def _tell(self, error: BaseException) -> int:
        kept = error.__traceback__
        while kept is not None and not kept.tb_frame.f_code.co_filename.startswith("<cell "):
            kept = kept.tb_next
        told = traceback.TracebackException(type(error), error, kept)
        told.stack = traceback.StackSummary.from_list([one for one in told.stack if one.filename != __file__])
        text = "".join(told.format())
        about = {"name": type(error).__name__, "value": _words(error)}
        self._channel.show({"type": "error", **about, "traceback": text})
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1

    def _show(self, value: Any) -> None:
        if value is None:
            return
        self._module.__dict__["_"] = value
        sys.stdout.flush()
        for method, kind in _RICH:
            shown = getattr(value, method, None) if not isinstance(value, type) else None
            made = shown() if callable(shown) else None
            if made is not None:
                self._channel.show(_rich_item(kind, made))
                return
        self._channel.show({"type": "media", "mime": "text/plain", "data": repr(value)})

    def _show_figures(self) -> None:
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        with contextlib.suppress(Exception):
            for number in pyplot.get_fignums():
                picture = io.BytesIO()
                pyplot.figure(number).savefig(picture, format="png", bbox_inches="tight")
                self._channel.show(_rich_item("image/png", picture.getvalue()))
            pyplot.close("all")

    def _input(self, prompt: object = "") -> str:
        return self._ask(str(prompt), password=False)

    def _password(self, prompt: str = "Password: ", stream: Any = None) -> str:
        return self._ask(str(prompt), password=True)

    def _ask(self, prompt: str, *, password: bool) -> str:
        sys.stdout.flush()
        self._channel.say(ask=prompt[:LARGEST_TEXT], password=password)
        while (order := self._next()) is not None:
            if order.get("do") == "input":
                return str(order["text"])
        raise EOFError("nobody answers any more")

    def _complete(self, order: dict[str, Any]) -> None:
        code = str(order["code"])[: int(order["cursor"])]
        begins = len(code)
        while begins and (code[begins - 1].isalnum() or code[begins - 1] in "._"):
            begins -= 1
        completer, matches = rlcompleter.Completer(self._module.__dict__), []  # type: rlcompleter.Completer, list[str]
        with contextlib.suppress(Exception):  # completion runs properties of users' objects
            while len(matches) < 200 and (match := completer.complete(code[begins:], len(matches))):
                matches.append(match)
        found = {"matches": matches, "cursor_start": begins, "cursor_end": int(order["cursor"])}
        self._channel.say(completion=found, number=order["number"])


def _rich_item(kind: str, made: Any) -> dict[str, Any]:
    if kind == "html":
        return {"type": "html", "html": str(made)}
    data = base64.b64encode(made).decode() if isinstance(made, bytes) else str(made)
    return {"type": "media", "mime": kind, "data": data}


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(the error cannot be shown)"
