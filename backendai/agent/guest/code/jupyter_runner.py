"""The client of one Jupyter kernel: sends it code, and forwards its messages to the guest without loss."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

from backendai.agent.guest.code.journal import folder_of_kernel
from backendai.agent.guest.code.languages import usual_of
from backendai.agent.guest.code.plain_runner import INTERRUPTED
from backendai.agent.guest.home.items import LARGEST_TEXT
from backendai.agent.guest.link.channel import Channel
from backendai.agent.guest.processes import start_folder
from backendai.base.process.slowness import allowed

_START_SECONDS = 50
_JOINED_TEXT = 32 * 1024
_LOOK_SECONDS = 0.5
_MOST_MATCHES = 1000
_IMAGES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp")


class JupyterRunner:
    """``jupyter`` and ``zmq``: the image's modules."""

    def __init__(self, channel: Channel, jupyter: Any, zmq: Any, specs: dict[str, Any], order: dict[str, Any]) -> None:
        self._channel, self._jupyter, self._zmq, self._order = channel, jupyter, zmq, order
        name = str(order["language"]) or usual_of(specs)
        self._name, self._spec = name, specs[name]["spec"]
        self._run_id = self._message_id = self._reply = ""
        self._is_idle, self._exit_code = True, 0
        self._text: dict[str, Any] = {}
        self._completions: dict[str, int] = {}

    def run(self) -> None:
        """Start the Jupyter kernel and serve until the guest or the kernel ends."""
        try:
            self._start()
        except Exception as error:  # the image's libraries can raise anything
            self._channel.say(failed=f"{type(error).__name__}: {error}")
            return
        about = {"language": self._name, "title": str(self._spec.get("display_name", self._name)), "kind": "jupyter"}
        process = getattr(self._manager.provisioner, "process", None)
        self._channel.say(ready={**about, "interrupts_by": "message", "group": getattr(process, "pid", 0)})
        try:
            self._serve()
        finally:
            with contextlib.suppress(Exception):
                self._manager.shutdown_kernel(now=True)

    def _start(self) -> None:
        context = self._zmq.Context()
        context.setsockopt(self._zmq.RCVHWM, 0)  # no limit: no message of the kernel is dropped
        manager = self._manager = self._jupyter.KernelManager(kernel_name=self._name)
        argv = manager.kernel_spec.argv
        keeps_all = "ipykernel_launcher" in argv
        if keeps_all:
            at = argv.index("ipykernel_launcher")
            argv[at - 1 : at + 1] = [sys.argv[0], "run-ipykernel"]
        manager.connection_file = str(folder_of_kernel() / f"k{os.getpid()}.json")
        if keeps_all or self._order["ipc_only"]:
            manager.transport = "ipc"
        manager.start_kernel(cwd=start_folder())
        self._client = manager.client(context=context)
        self._client.start_channels()
        self._client.wait_for_ready(timeout=allowed(_START_SECONDS))

    def _serve(self) -> None:
        zmq, client = self._zmq, self._client
        poller = zmq.Poller()
        poller.register(self._channel.fileno(), zmq.POLLIN)
        sockets = {"iopub": client.iopub_channel.socket, "shell": client.shell_channel.socket,
                   "stdin": client.stdin_channel.socket}  # fmt: skip
        for one in sockets.values():
            poller.register(one, zmq.POLLIN)
        looked_at = time.monotonic()
        while True:
            ready = dict(poller.poll(0 if self._text else 1000 * _LOOK_SECONDS))
            if self._channel.fileno() in ready and not self._obey():
                return
            for name, one in sockets.items():
                if one in ready:
                    self._take_all(name, one)
            if not ready:
                self._flush()
            self._finish()
            if time.monotonic() - looked_at > _LOOK_SECONDS:
                looked_at = time.monotonic()
                if not self._manager.is_alive():
                    self._end_with_kernel()

    def _take_all(self, name: str, one: Any) -> None:
        take = {"iopub": self._published, "shell": self._replied, "stdin": self._asked}[name]
        for _ in range(1000):
            try:
                _, message = self._client.session.recv(one, mode=self._zmq.NOBLOCK)
            except ValueError:  # a message with an invalid signature is not from the kernel
                continue
            if message is None:
                return
            take(message)

    def _obey(self) -> bool:
        orders = self._channel.hear()
        for order in orders or ():
            does = order.get("do")
            if does == "run":
                self._run_id, self._reply, self._is_idle = str(order["run_id"]), "", False
                self._message_id = self._client.execute(str(order["code"]), allow_stdin=True)
            elif does == "input":
                self._client.input(str(order["text"]))
            elif does == "interrupt":
                self._manager.interrupt_kernel()
            elif does == "complete":
                self._completions[self._client.complete(str(order["code"]), int(order["cursor"]))] = order["number"]
            elif does == "end":
                return False
        return orders is not None

    def _published(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self._add_text("stderr" if content["name"] == "stderr" else "stdout", content["text"])
            return
        self._flush()
        if kind in ("display_data", "execute_result", "update_display_data"):
            self._channel.show({**_item_of(content), "updates": kind == "update_display_data"})
        elif kind == "error":
            self._channel.show(_error_of(content))
        elif kind == "clear_output":
            self._channel.show({"type": "clear", "wait": bool(content.get("wait"))})
        elif kind == "status" and content["execution_state"] == "idle" and _parent(message) == self._message_id:
            self._is_idle = True

    def _replied(self, message: dict[str, Any]) -> None:
        content, asked_by = message["content"], _parent(message)
        if message["msg_type"] == "execute_reply" and asked_by == self._message_id:
            self._reply, self._exit_code = content["status"], _exit_code(content)
        elif message["msg_type"] == "complete_reply" and asked_by in self._completions:
            found = {name: content.get(name) for name in ("cursor_start", "cursor_end")}
            found["matches"] = [one for one in content.get("matches", ()) if len(one) <= LARGEST_TEXT][:_MOST_MATCHES]
            self._channel.say(completion=found, number=self._completions.pop(asked_by))

    def _asked(self, message: dict[str, Any]) -> None:
        self._flush()
        if message["msg_type"] == "input_request":
            content = message["content"]
            self._channel.say(ask=str(content.get("prompt", ""))[:LARGEST_TEXT], password=bool(content.get("password")))

    def _finish(self) -> None:
        """Report the run's end once it has a reply and the kernel is idle: then all output is published."""
        if self._message_id and self._reply and self._is_idle:
            self._flush()
            self._message_id = ""
            self._channel.say(done=self._run_id, exit_code=self._exit_code)

    def _end_with_kernel(self) -> None:
        self._flush()
        process = getattr(self._manager.provisioner, "process", None)
        code = process.returncode if process is not None else 1
        os._exit(code if code is not None and code >= 0 else 128 - (code or 0))

    def _add_text(self, kind: str, text: str) -> None:
        if self._text and (self._text["type"] != kind or self._text["length"] > _JOINED_TEXT):
            self._flush()
        if not self._text:
            self._text = {"type": kind, "pieces": [], "length": 0}
        self._text["pieces"].append(text)
        self._text["length"] += len(text)

    def _flush(self) -> None:
        if self._text:
            self._channel.show({"type": self._text["type"], "text": "".join(self._text["pieces"])})
            self._text = {}


def _parent(message: dict[str, Any]) -> str:
    return str(message.get("parent_header", {}).get("msg_id", ""))


def _exit_code(content: dict[str, Any]) -> int:
    if content["status"] == "ok":
        return 0
    if content.get("ename") == "KeyboardInterrupt":
        return INTERRUPTED
    value = str(content.get("evalue", ""))
    if content.get("ename") == "SystemExit":
        return int(value) & 255 if value.lstrip("-").isdigit() else (0 if value in ("", "None") else 1)
    return 1


def _error_of(content: dict[str, Any]) -> dict[str, Any]:
    """Return an error as an item; only the text of a SystemExit."""
    if content.get("ename") == "SystemExit":
        value = str(content.get("evalue", ""))
        says = "" if value in ("", "None", "True", "False") or value.lstrip("-").isdigit() else f"{value}\n"
        return {"type": "stderr", "text": says}
    about = {"name": content.get("ename"), "value": content.get("evalue")}
    return {"type": "error", **about, "traceback": "\n".join(content.get("traceback", ()))}


def _item_of(content: dict[str, Any]) -> dict[str, Any]:
    """Return a result as an item, in the richest format that a page can show."""
    data: dict[str, Any] = content.get("data", {})
    text = str(data.get("text/plain", ""))
    display = (content.get("transient") or {}).get("display_id")
    more = {"display": str(display)} if display else {}
    if "text/html" in data:
        return {"type": "html", "html": str(data["text/html"]), "text": text, **more}
    for mime in _IMAGES:
        if mime in data:
            return {"type": "media", "mime": mime, "data": str(data[mime]).replace("\n", "") if mime != "image/svg+xml"
                    else str(data[mime]), "text": text, **more}  # fmt: skip
    return {"type": "media", "mime": "text/plain", "data": text, **more}
