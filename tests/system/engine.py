"""A private Docker Engine beside the machine's own: its own containerd, data, network and mount namespaces.

Own network namespace, because a second engine rewrites the packet rules and bridges that it finds. The mount namespace
outlives the engine's processes, as on a real machine: with live-restore they must come back into the same one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import psutil
from docker import APIClient
from docker.errors import DockerException

from tests.patience import patient, until
from tests.system.images import ensure_tiny

_UP_WITHIN = 60.0
_GONE_WITHIN = 15.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

# A /sys of the new network with the machine's control groups, and a /run of its own, so that no other engine is found.
_MOUNTS = """
mount --rbind /sys/fs/cgroup "$0/groups"; mount -t sysfs sysfs /sys; mount --rbind "$0/groups" /sys/fs/cgroup
umount -l "$0/groups"; mount --bind "$0/run" /run; echo ready; exec sleep infinity
""".strip()


class Switch:
    """A network of this machine and several others; use as a context manager. Its namespace has no packet rules: those
    of this machine would drop what is between two others. ``portal_host`` is this machine's address."""

    def __init__(self) -> None:
        self._subnet = f"10.98.{os.getpid() % 256}"
        self.portal_host = f"{self._subnet}.1"
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Switch:
        making = "ip link add br0 type bridge; ip link set br0 up; echo ready; exec sleep infinity"
        command = ["unshare", "--net", "bash", "-ec", making]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_die_too)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        self.plug_in(f"bai0{os.getpid():x}", 1, [])
        return self

    def __exit__(self, *_failed: object) -> None:
        assert self._holder is not None
        self._holder.kill()
        self._holder.wait()

    def plug_in(self, device: str, number: int, inside: Sequence[str], namespace: int | None = None) -> None:
        """Connect a device with this number as its address. ``inside``: words before each command in its namespace."""
        assert self._holder is not None
        end = f"netns {namespace}" if namespace else ""
        _run(f"ip link add {device} {end} type veth peer name port{number} netns {self._holder.pid}")
        switch = ["nsenter", "--target", str(self._holder.pid), "--net", "--"]
        _run(f"ip link set port{number} master br0 up", switch)
        _run(f"ip addr add {self._subnet}.{number}/24 dev {device}", inside)
        _run(f"ip link set {device} up", inside)


class PrivateEngine:
    """Use as a context manager. Commands ``inside`` run as on a machine of its own, on which this engine has the usual
    address; from there this machine is at ``portal_host``. ``url`` is the engine's address out here. ``programs``: a
    folder in which it looks for programs first. Several engines need a ``switch`` and a ``number`` each, from 2."""

    def __init__(
        self, home: Path, *, programs: Path | None = None, switch: Switch | None = None, number: int = 2
    ) -> None:
        self._path = os.pathsep.join([*([str(programs)] if programs else []), os.environ.get("PATH", os.defpath)])
        self.home, self.tag = home, f"{os.getpid():x}" + (f"-{number}" if switch else "")
        self.url = f"unix://{home}/run/docker.sock"
        self._subnet = f"10.98.{os.getpid() % 256}"
        self.portal_host = f"{self._subnet}.1"
        self._switch, self._number = switch, number
        self._holder: subprocess.Popen[str] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrivateEngine:
        try:
            self._make_namespaces()
            self._make_network()
            self.start()
            ensure_tiny(self.url)
        except BaseException:
            self._remove_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_all()

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command as it runs in the engine's namespaces."""
        assert self._holder is not None
        return ["nsenter", "--target", str(self._holder.pid), "--mount", "--net", "--", *command]

    def start(self) -> None:
        """Start the engine and wait until it answers."""
        (self.home / "docker.pid").unlink(missing_ok=True)  # a killed engine leaves it
        options = {
            "--host": "unix:///run/docker.sock",
            "--data-root": str(self.home / "data"),
            "--exec-root": str(self.home / "exec"),
            "--pidfile": str(self.home / "docker.pid"),
            "--config-file": str(self.home / "daemon.json"),
            "--cgroup-parent": f"/backendai-{self.tag}",
            "--default-address-pool": "base=10.97.0.0/16,size=26",
        }
        (self.home / "daemon.json").write_text('{"live-restore": true}')
        words = [word for pair in options.items() for word in pair]
        with (self.home / "dockerd.log").open("ab") as log:
            self._dockerd = subprocess.Popen(
                self.inside(["dockerd", *words]),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PATH": self._path},
                preexec_fn=_die_too,
            )
        until(self._answers, _UP_WITHIN, "the private engine answers", last=self._tail)

    def kill(self) -> None:
        """Send SIGKILL to the engine and its containerd. Containers and their shims go on."""
        assert self._dockerd is not None
        _, *struck = self.family()
        self._dockerd.kill()
        self._dockerd.wait()
        for process in struck:
            process.kill()
        assert not psutil.wait_procs(struck, timeout=patient(_GONE_WITHIN))[1]

    def cut_off(self) -> None:
        """Take the machine off the network."""
        _run("ip link set eth0 down", self.inside([]))

    def connect(self) -> None:
        """Bring the machine onto the network, for the first time or again."""
        _run("ip link set eth0 up", self.inside([]))
        _run(f"ip route replace default via {self.portal_host}", self.inside([]))

    @property
    def is_up(self) -> bool:
        """Whether the engine's process lives."""
        return self._dockerd is not None and self._dockerd.poll() is None

    def family(self) -> list[psutil.Process]:
        """Return the engine's process and its containerd's."""
        assert self._dockerd is not None
        engine = psutil.Process(self._dockerd.pid)
        return [engine, *(one for one in engine.children(recursive=True) if one.name() == "containerd")]

    def processes(self) -> list[psutil.Process]:
        """Return every process of the engine's network: engine, shims and what was started by ``inside``; and the
        containers', which are in our control groups."""
        assert self._holder is not None
        network = _network_of(self._holder.pid)
        found = {process for process in psutil.process_iter() if _network_of(process.pid) == network}
        mark = f"/backendai-{self.tag}/"
        # Unlike a glob, a walk passes over control groups of others that end meanwhile.
        for folder in (Path(path) for path, _, _ in os.walk("/sys/fs/cgroup") if mark in f"{path}/"):
            for pid in _quietly(lambda folder=folder: (folder / "cgroup.procs").read_text().split()) or ():
                one = _quietly(lambda pid=pid: psutil.Process(int(pid)))
                found |= {one} if one else set()
        return [process for process in found if process.pid != self._holder.pid]

    def _make_namespaces(self) -> None:
        for name in ("data", "exec", "run", "groups"):
            (self.home / name).mkdir()
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--propagation", "private", "bash", "-ec", _MOUNTS, str(self.home)],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_die_too,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"

    def _make_network(self) -> None:
        assert self._holder is not None
        if self._switch:
            self._switch.plug_in("eth0", self._number, self.inside([]), self._holder.pid)
        else:
            ours = f"bai0{self.tag}"
            _run(f"ip link add {ours} type veth peer name eth0 netns {self._holder.pid}")
            _run(f"ip addr add {self.portal_host}/24 dev {ours}")
            _run(f"ip link set {ours} up")
            _run(f"ip addr add {self._subnet}.2/24 dev eth0", self.inside([]))
        _run("ip link set lo up", self.inside([]))
        self.connect()

    def _answers(self) -> bool:
        assert self._dockerd is not None
        assert self._dockerd.poll() is None, self._tail()
        try:
            client = APIClient(base_url=self.url, timeout=patient(5))
            client.close()
        except DockerException:
            return False
        return True

    def _tail(self) -> str:
        return (self.home / "dockerd.log").read_text(errors="replace")[-3000:]

    def _remove_all(self) -> None:
        if self._holder is None:
            return

        def gone() -> bool:
            left = self.processes()
            for process in left:
                _quietly(process.kill)
            return not left

        until(gone, _GONE_WITHIN, "the processes of the private engine are gone", last=self.processes)
        self._holder.kill()
        self._holder.wait()
        if self._dockerd is not None:
            self._dockerd.wait()
        for disk in psutil.disk_partitions(all=True):
            if disk.mountpoint.startswith(f"{self.home}/"):
                subprocess.run(["umount", "-l", disk.mountpoint], check=False)
        for folder in sorted(Path("/sys/fs/cgroup").glob(f"**/backendai-{self.tag}/**/"), reverse=True):
            _quietly(folder.rmdir)
        shutil.rmtree(self.home, ignore_errors=True)


def _run(command: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, *command.split()], check=True)


def _die_too() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _network_of(pid: int) -> str | None:
    return _quietly(lambda: os.readlink(f"/proc/{pid}/ns/net"))


def _quietly(call: Callable[[], object]):  # type: ignore[no-untyped-def]
    """Return the answer, or None when the process or folder is gone by now."""
    try:
        return call()
    except (OSError, psutil.Error):
        return None
