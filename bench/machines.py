"""What the agent adds to the start of a virtual machine: the same QEMU with and without it, taking turns in one run.

bin/bench machines [--json] [--rounds N] [--root FOLDER] [--acceleration auto|kvm|tcg]

``ratio_p50``: from the order until the guest has started the main process, through the agent and by QEMU alone with the
same image, memory, disk and kernel.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from backendai.agent.backends.qemu.backend import QemuBackend
from backendai.agent.backends.qemu.channel.frames import FrameDecoder, FrameKind
from backendai.agent.backends.qemu.command import GuestShape
from backendai.agent.backends.qemu.disk import make_disk
from backendai.agent.backends.qemu.tools import QemuTools
from backendai.agent.settings.qemu import ACCELERATIONS, QemuSettings
from backendai.base.wire.messages import KernelSpec
from bench._command import command, show

_IMAGE = "local/backendai-tiny:latest"
_BED = Path("/var/tmp/backendai/qemu-bed")


def main() -> None:
    """Measure and print."""
    parser = command("machines", __doc__, {"rounds": (10, "starts on each side")})
    parser.add_argument("--image", default=_IMAGE, help="an image of the Docker Engine")
    parser.add_argument("--root", type=Path, default=_BED if _BED.exists() else Path("/"), help="where QEMU is")
    parser.add_argument("--acceleration", choices=ACCELERATIONS, default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = QemuSettings(options.root, Path(folder, "cache"), options.acceleration)
        backend = QemuBackend(Path(folder), settings, deployment="bench", agent="n1")
        try:
            figures = run(backend, options.image, options.rounds)
        finally:
            for kernel in backend.kernels():
                backend.remove(kernel.kernel_id)
            backend.close()
    show(options, figures)


def run(backend: QemuBackend, image: str, rounds: int) -> dict[str, Any]:
    """Return the figures of so many starts on each side."""
    agent, bare = list[float](), list[float]()
    for number in range(rounds + 1):
        spec = _spec(image)
        begun = time.perf_counter()
        backend.start(spec)
        if number:  # the first one makes the file system of the image
            agent.append(time.perf_counter() - begun)
        folder = backend._starter.places.find(spec.kernel_id)
        launch = folder.read("launch")
        shape = GuestShape(0, 1, "", has_network=backend.network.ensure())
        disk = folder.path.parent / "bare-disk"
        backend.remove(spec.kernel_id)
        make_disk(disk, spec, {}, QemuTools(backend.settings.root), uid=None, shares=[], shape=shape)
        if number:
            bare.append(_bare(launch, disk))
        disk.unlink()
    return {
        "acceleration": backend.acceleration.find().acceleration,
        "ratio_p50": round(statistics.median(agent) / statistics.median(bare), 2),
        "agent_s_p50": round(statistics.median(agent), 2),
        "bare_s_p50": round(statistics.median(bare), 2),
        "rounds": rounds,
    }


def _spec(image: str) -> KernelSpec:
    slots = {"cpu": "1", "mem": str(256 * 2**20)}
    names = {"deployment": "bench", "agent": "n1", "session_name": "bench", "image": image}
    return KernelSpec(**names, kernel_id=uuid4(), session_id=uuid4(), generation=1, slots=slots)


def _bare(launch: dict[str, Any], disk: Path) -> float:
    """Return the seconds from the start of QEMU to the first word of its guest."""
    files = {**launch["files"], "disk": str(disk), "disk_looked_at": str(disk)}
    opened = {name: os.open(path, os.O_RDWR if name == "disk" else os.O_RDONLY) for name, path in files.items()}
    ours, theirs = socket.socketpair()
    opened["channel"] = theirs.fileno()
    argv = [word.format(**opened) for word in launch["argv"]]
    begun = time.perf_counter()
    machine = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=launch["environ_outside"],
        pass_fds=list(opened.values()),
    )  # fmt: skip
    decoder = FrameDecoder()
    while not any(frame.kind == FrameKind.SAY and frame.text == "started" for frame in decoder.feed(ours.recv(65536))):
        pass
    seconds = time.perf_counter() - begun
    machine.kill()
    machine.wait()
    for name, file in opened.items():
        if name != "channel":
            os.close(file)
    ours.close()
    theirs.close()
    return seconds


if __name__ == "__main__":
    main()
