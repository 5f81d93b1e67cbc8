"""Chooses the program that runs a context's code: a Jupyter kernel if the image has one, else plain Python."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import warnings
from typing import Any

from backendai.agent.guest.code import jupyter_runner, plain_runner
from backendai.agent.guest.link.channel import Channel

_NO_JUPYTER = (
    "ipykernel is not installed here, so plain Python runs the code: without completion of IPython and its magics. "
    "Restart the context when it is installed. A new agent without containers installs it in its first minutes."
)


def run_interpreter(file: int, order: dict[str, Any]) -> None:
    """Run code for the guest until it closes the socket ``file``."""
    channel = Channel(socket.socket(fileno=file))
    sys.path[0] = ""  # users' modules are in the working directory, not beside this program
    try:
        jupyter, zmq = importlib.import_module("jupyter_client"), importlib.import_module("zmq")
        specs = importlib.import_module("jupyter_client.kernelspec").KernelSpecManager().get_all_specs()
    except ImportError:
        jupyter, zmq, specs = None, None, {}
    language = str(order["language"])
    if not specs and language in ("", "python", "python3"):
        plain_runner.PlainRunner(channel, _NO_JUPYTER).run()
    elif language and language not in specs:
        known = ", ".join(sorted(specs)) or "python3"
        channel.say(failed=f"There is no language {language[:64]!r} here. Use one of: {known}.")
    else:
        jupyter_runner.JupyterRunner(channel, jupyter, zmq, specs, order).run()


def run_ipykernel() -> None:
    """Run an IPython kernel whose output waits for slow readers instead of being dropped."""
    del sys.argv[1]
    sys.path[0] = ""
    zmq = importlib.import_module("zmq")
    application: Any = importlib.import_module("ipykernel.kernelapp").IPKernelApp

    class KeepingApp(application):
        """Publishes output over a socket without a message limit, which never drops messages."""

        def init_iopub(self, context: Any) -> None:
            """Create the output's socket without a limit. The limit applies to connections that are made later."""
            before = context.sockopts.get(zmq.SNDHWM)
            context.setsockopt(zmq.SNDHWM, 0)
            try:
                super().init_iopub(context)
            finally:
                context.setsockopt(zmq.SNDHWM, 1000 if before is None else before)
            with contextlib.suppress(zmq.ZMQError):
                self.iopub_socket.setsockopt(zmq.XPUB_NODROP, 1)

        def init_io(self) -> None:
            """Capture the programs' output. Discards the copy to this process's own output, which would duplicate
            it."""
            super().init_io()
            nothing = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                copy = getattr(stream, "_original_stdstream_copy", None)
                if isinstance(copy, int):
                    os.dup2(nothing, copy)

        def init_shell(self) -> None:
            """Let ``exit(3)`` end the run with this exit code, and keep the interpreter and its variables."""
            super().init_shell()
            with contextlib.suppress(Exception):  # another version of IPython may lack it: code runs all the same
                self.shell.exiter = exiter = _leaving(type(self.shell.exiter))(self.shell)
                self.shell.user_ns.update(exit=exiter, quit=exiter)
            warnings.filterwarnings("ignore", message="To exit: use")

    KeepingApp.launch_instance()


def _leaving(exiter: Any) -> Any:
    """Return a subclass of IPython's class for ``exit`` and ``quit`` that ends the run."""

    class Leave(exiter):
        def __call__(self, code: Any = None) -> None:
            raise SystemExit(code)

    return Leave
