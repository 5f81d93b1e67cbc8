"""``python -m backendai.ops.run.warm_parent.parent``: loads the platform's code once, and forks its processes.

The first parent is for agents, without secrets of the portal; the one below it also loads the portal. Neither opens a
file, a connection or a thread. Forked processes become children of the supervisor, so both may be killed at any time.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from backendai.ops.run.warm_parent.kinship import die_with, show_as, wait_for_adoption

NODE, PORTAL = "node", "portal"
LONGEST_MESSAGE = 64 * 1024

_SETTINGS = "backendai.settings.portal"
_NODE_MODULES = ("uvloop", "celery.apps.worker", "backendai.agent.management.commands.agent")
_PORTAL_MODULES = (
    "backendai.portal.http.timeouts",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "celery.bin.celery",
    "celery.apps.beat",
    "backendai.urls",
    "backendai.portal.realtime.routing",
    "backendai.portal.loops.tasks",
    "backendai.portal.loops.clock",
    "backendai.gates.appproxy.server",
    "backendai.gates.sshgate.server",
    "backendai.ops.run.image_builds",
)


@dataclass(frozen=True, slots=True)
class ForkOrder:
    """The order for a new process.

    Has its command after the interpreter, additional environment variables, and the descriptor for its output.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    supervisor: int
    output: int


def main(arguments: Sequence[str]) -> None:
    """Serve the two sockets whose descriptors are the arguments until they close.

    In a forked process, run the ordered program.
    """
    sockets = {name: socket.socket(fileno=int(given)) for name, given in zip((NODE, PORTAL), arguments, strict=False)}
    name, below = NODE, -1
    _load(_NODE_MODULES)
    parent = os.getpid()
    if (child := os.fork()) == 0:
        die_with(parent)
        name = PORTAL
        _load_portal()
    else:
        below = os.pidfd_open(child)
    show_as([sys.executable, "-m", "backendai.ops.run.warm_parent.parent", name])
    order = _serve(sockets[name], below)
    for one in sockets.values():
        one.close()
    _become(order)


def _load(modules: Sequence[str]) -> None:
    for name in modules:
        import_module(name)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("a module has started a thread; forking is only safe without others")
    # What is not looked at is not written to, and stays shared.
    gc.collect()
    gc.freeze()


def _load_portal() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", _SETTINGS)
    import_module("django").setup()
    app = import_module("backendai.celery").app
    app.loader.import_default_modules()
    for route in import_module("django.urls").get_resolver().url_patterns:
        getattr(route, "url_patterns", None)
    _load(_PORTAL_MODULES)


def _serve(orders: socket.socket, below: int) -> ForkOrder:
    """Fork a process for each order, forever; returns the order in each new process."""
    orders.send(_message(ready=os.getpid()))
    watched: list[Any] = [orders, below] if below >= 0 else [orders]
    while True:
        if below in select.select(watched, [], [])[0]:
            raise SystemExit("The process that loads the portal is gone: both begin anew.")
        data, descriptors, _, _ = socket.recv_fds(orders, LONGEST_MESSAGE, 1)
        request = json.loads(data)
        order = ForkOrder(request["words"], request["environment"], request["supervisor"], *descriptors)
        if request["to"] == os.getpid():  # else it was meant for the one before this
            if (child := os.fork()) == 0:
                if os.fork():
                    os._exit(0)
                _be_adopted(orders, order)
                return order
            os.waitpid(child, 0)
        os.close(order.output)


def _be_adopted(orders: socket.socket, order: ForkOrder) -> None:
    wait_for_adoption(order.supervisor)
    die_with(order.supervisor)
    os.setsid()
    for standard in (1, 2):
        os.dup2(order.output, standard)
    os.close(order.output)
    orders.send(_message(child=os.getpid()))


def _become(order: ForkOrder) -> None:
    os.environ.update(order.environment)
    show_as([sys.executable, *order.words])
    first, *rest = order.words
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(order.words)
        runpy.run_path(first, run_name="__main__")


def _message(**values: Any) -> bytes:
    return json.dumps(values).encode()


if __name__ == "__main__":
    main(sys.argv[1:])
