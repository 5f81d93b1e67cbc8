"""An agent of an ordinary user runs two kernels with mounts; prints their output, or why they do not start."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.mounts.hosts import StorageHosts
from backendai.base.wire.mounts import MountSpec
from tests.agent.contract_tools import ended_of
from tests.agent.specs import make_spec


def main() -> None:
    order = json.load(sys.stdin)
    hosts = StorageHosts({"local": Path(order["root"])}, (), "test")
    backend = NativeBackend(Path(order["agent"]), deployment="test", agent="n1", hosts=hosts)
    hosts.look(backend.mount_rules())
    said: list[Any] = [[(report.fault, report.read_only) for report in hosts.reports()]]
    for mount, command in zip(
        order["mounts"], ("echo hello >data/file", "cat data/file; echo x >data/file"), strict=True
    ):
        spec = make_spec(image=IMAGE, session_type="batch", command=command, mounts=[MountSpec(**mount)])
        try:
            backend.start(spec)
            ended_of(backend, spec.kernel_id)
            said.append(backend.read_log(spec.kernel_id, limit=10_000)[0].decode())
        except StartFailed as error:
            said.append(str(error))
        backend.remove(spec.kernel_id)
    backend.close()
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
