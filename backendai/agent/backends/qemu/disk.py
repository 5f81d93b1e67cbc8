"""A virtual machine's writable disk: a sparse ext4 of the scratch folder's size, which is a hard limit.

The agent fills it without mounting it. The guest reads ``launch`` from it, and overlays the image with ``upper``. This
machine's Linux never mounts a guest's disk.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.guest_host import INSIDE as GUEST
from backendai.agent.backends.qemu.command import GuestShape
from backendai.agent.backends.qemu.tools import QemuTools
from backendai.agent.backends.shared.authorities import INSIDE as AUTHORITIES
from backendai.agent.backends.shared.authorities import authority_environ, write_authorities
from backendai.agent.backends.shared.cluster_files import ClusterAccess, cluster_environ, write_cluster
from backendai.agent.backends.shared.home import fill_home, main_command
from backendai.agent.mounts.hosts import KERNEL_USER
from backendai.agent.mounts.kernel_mounts import Bind
from backendai.base.core.slots import format_size
from backendai.base.paths.mount_targets import HOME as WORKDIR
from backendai.base.wire.messages import KernelSpec

UNLIMITED = 64 * 2**30  # a sparse file uses disk space only for written data
_OWN_ROOM = 24 * 2**20  # for the file system's own data, in addition to the kernel's limit
_OPTIONS = ("-q", "-F", "-t", "ext4", "-O", "^has_journal,^resize_inode", "-m", "0", "-E", "root_owner=0:0")
_SECONDS = 60.0
_RESOLVER = Path("/etc/resolv.conf")
_ACCESS = ClusterAccess(GUEST, "/tmp/.cluster-environ")  # noqa: S108 - private to the kernel
_KEYS = ("ssh/id_ed25519", "ssh/host_key")
_ENVIRON = {"HOME": WORKDIR, "LANG": "C.UTF-8", "TERM": "xterm"}
_FOLDERS: Mapping[str, str] = {"home": WORKDIR, "tmp": "/tmp", "var-tmp": "/var/tmp", "guest": GUEST}  # noqa: S108


@dataclass(frozen=True, slots=True)
class FolderShare:
    """A folder that QEMU offers to the guest under a tag."""

    tag: str
    bind: Bind


def make_disk(
    path: Path,
    spec: KernelSpec,
    environ: Mapping[str, str],
    tools: QemuTools,
    *,
    uid: int | None,
    shares: Sequence[FolderShare],
    shape: GuestShape,
) -> None:
    """Create a kernel's disk. ``environ``: the image's variables. Raises OSError, StartFailed."""
    spec = _with_addresses(spec, shape)
    with tempfile.TemporaryDirectory(prefix=".disk-", dir=path.parent) as made:
        tree = Path(made)
        _fill(tree, spec, shape)
        user = KERNEL_USER if uid is None else uid
        words = launch_words(spec, environ, shape, uid=user, shares=shares)
        (tree / "launch").write_bytes(b"".join(word.encode() + b"\0" for word in words))
        path.touch(mode=0o600)
        with path.open("r+b") as file:
            file.truncate((spec.scratch_bytes or UNLIMITED) + _OWN_ROOM)
        command = [tools.need("mke2fs"), *_OPTIONS, "-d", str(tree), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        text = "The disk of the virtual machine cannot be made: {error}"
        raise StartFailed(text, error=done.stderr.strip()[-300:])


def launch_words(
    spec: KernelSpec,
    environ: Mapping[str, str],
    shape: GuestShape,
    *,
    uid: int,
    shares: Sequence[FolderShare] = (),
) -> list[str]:
    """Return the settings for the guest's first process, in the format of ``init/boot.c``."""
    binds = dict(_FOLDERS) | ({"authorities": AUTHORITIES} if spec.authorities else {})
    trusted = authority_environ(spec, AUTHORITIES) | cluster_environ(spec, _ACCESS)
    variables = {**_ENVIRON, **environ, **trusted, **spec.environ}
    return [
        f"uid={uid}",
        f"gid={uid}",
        f"pids={spec.pids}",
        f"host={spec.hostname}",
        f"folder={spec.start_in or WORKDIR}",
        f"shm={spec.shm_bytes}",
        *_network_words(shape),
        *(f"environ={name}={value}" for name, value in variables.items()),
        *(f"argument={word}" for word in main_command(spec, WORKDIR, _ACCESS)),
        *(f"bind={source}:{target}" for source, target in binds.items()),
        *(f"own=guest/{key}" for key in _KEYS if spec.keys is not None),
        *(f"share={one.tag}:{'ro' if one.bind.read_only else 'rw'}:{one.bind.target}" for one in shares),
    ]


def size_words(spec: KernelSpec) -> str:
    """Return the message about a full disk."""
    size = format_size(spec.scratch_bytes or UNLIMITED)
    return f"Its disk of {size} is full: delete files, or start a session with more scratch space."


def _with_addresses(spec: KernelSpec, shape: GuestShape) -> KernelSpec:
    """Return the spec with each kernel's address in the session's network, if it has one."""
    if shape.rank is None:
        return spec
    told = [peer.model_copy(update={"address": shape.addresses.of_rank(peer.rank)}) for peer in spec.peers]
    return spec.model_copy(update={"peers": told})


def _network_words(shape: GuestShape) -> Iterator[str]:
    """Yield the addresses of the guest's network devices, in order."""
    addresses = shape.addresses
    if shape.has_network:
        yield f"interface={addresses.own}:{addresses.outward.netmask}"
        yield f"gateway={addresses.gateway}"
    if shape.rank is not None:
        yield f"interface={addresses.of_rank(shape.rank)}:{addresses.session.netmask}"


def _fill(tree: Path, spec: KernelSpec, shape: GuestShape) -> None:
    for name in (*_FOLDERS, "work", "upper/etc"):
        (tree / name).mkdir(parents=True)
    for folder in (tree, tree / "guest", tree / "upper", tree / "upper/etc", tree / "home"):
        folder.chmod(0o755)
    for name in ("tmp", "var-tmp"):
        (tree / name).chmod(0o1777)
    tables = {
        "hostname": f"{spec.hostname}\n",
        "hosts": _hosts(spec),
    }
    if shape.has_network:
        tables["resolv.conf"] = f"{_search()}nameserver {shape.addresses.name_server}\n"
    for name, text in tables.items():
        (tree / "upper/etc" / name).write_text(text)
        (tree / "upper/etc" / name).chmod(0o644)
    if spec.authorities:
        write_authorities(tree / "authorities", spec)
    write_cluster(tree / "guest", spec, _ACCESS, owner=None)
    fill_home(tree / "home", spec, owner=None, access=_ACCESS)


def _hosts(spec: KernelSpec) -> str:
    named = [f"{peer.address} {peer.hostname}" for peer in spec.peers if peer.address]
    own = "" if named else f" {spec.hostname}"
    return "\n".join((f"127.0.0.1 localhost{own}", "::1 localhost", *named, ""))


def _search() -> str:
    """Return this machine's search domains, as lines of resolv.conf."""
    text = _RESOLVER.read_text() if _RESOLVER.exists() else ""
    return "".join(f"{line}\n" for line in text.splitlines() if line.startswith(("search ", "domain ")))
