"""Prepares a native kernel's start: its files, its command and its environment."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backendai.agent.accelerators.base import Grant
from backendai.agent.backends.base import SH, StartFailed
from backendai.agent.backends.guest_host import INSIDE as GUEST_INSIDE
from backendai.agent.backends.native.sandbox import (
    BIN_INSIDE,
    DOOR,
    DOOR_INSIDE,
    ENVIRONMENTS_INSIDE,
    USER_INSIDE,
    Isolation,
    NativePlace,
    open_to_all,
    sandbox,
)
from backendai.agent.backends.shared.authorities import INSIDE as AUTHORITIES_INSIDE
from backendai.agent.backends.shared.authorities import authority_environ, write_authorities
from backendai.agent.backends.shared.cluster_files import (
    ClusterAccess,
    cluster_environ,
    lacking_here,
    write_cluster,
)
from backendai.agent.backends.shared.home import WAIT, fill_home, main_command
from backendai.agent.backends.shared.terminals import STATUS_LINES
from backendai.agent.mounts.hosts import KERNEL_USER
from backendai.base.core.slots import MILLI, Slots
from backendai.base.paths.mount_targets import HOME, below_home
from backendai.base.wire.messages import KernelSpec

_COUNTS_PER_NAMESPACE = (5, 14)  # since this version, Linux counts processes per user namespace
TMUX_CONF = "tmux.conf"
ENVIRONMENT = "python"


def furnish(
    place: NativePlace, spec: KernelSpec, isolation: Isolation, unpack: Callable[[Path], None] = lambda _: None
) -> None:
    """Create the kernel's files: home, temporary folder, ``python``, tables of users and hosts. ``unpack``: as in
    ``fill_home``."""
    for folder in (place.home, place.tmp, place.programs, place.tables, place.guest):
        folder.mkdir()
    for name in ("python", "python3"):
        (place.programs / name).symlink_to(_interpreter(place, isolation))
    user = USER_INSIDE if place.uid is None else place.uid
    peers = "".join(f"{peer.address or '127.0.0.1'} {peer.hostname}\n" for peer in spec.peers)
    tables = {
        "passwd": f"work:x:{user}:{user}:work:{HOME}:{_shell()}\n",
        "group": f"work:x:{user}:\n",
        "hosts": f"127.0.0.1 localhost {spec.hostname}\n::1 localhost\n{peers}",
    }
    for name, text in tables.items():
        (place.tables / name).write_text(text)
        (place.tables / name).chmod(0o644)
    if spec.authorities:
        write_authorities(place.authorities, spec)
    for folder in (place.programs, place.tables, place.guest):
        folder.chmod(0o755)
    conf = "\n".join(STATUS_LINES) + f'\nsource-file -q "{home_of(place, isolation)}/.tmux.conf"\n'
    (place.programs / TMUX_CONF).write_text(conf)
    (place.programs / TMUX_CONF).chmod(0o644)
    access = _access(place, isolation)
    write_cluster(place.guest, spec, access, owner=place.uid)
    fill_home(place.home, spec, owner=place.uid, access=access, unpack=unpack)
    if isolation.bwrap is None:
        _link_folders(place)
    for folder in filter(None, (place.home, place.tmp, place.runtime)):
        folder.chmod(0o700)
        if place.uid is not None:
            os.chown(folder, place.uid, place.uid)


def launch_order(spec: KernelSpec, place: NativePlace, isolation: Isolation, grant: Grant) -> dict[str, Any]:
    """Return the kernel's launch data: ``argv``, the runner's command; ``environ``, for the kernel's programs;
    ``environ_outside``, for processes before rights are dropped, without users' variables."""
    inside = isolation.bwrap is not None
    home = home_of(place, isolation)
    programs = BIN_INSIDE if inside else str(place.programs)
    temporary = _temporary(place, isolation)
    access = _access(place, isolation)
    door = {
        "main": main_command(spec, home, access, shell=_shell()),
        "wait": [SH, "-c", WAIT, "wait", home] if spec.bootstrap else [],
        "workdir": _start_of(spec, home),
        "uid": place.uid,
        "pids": spec.pids if _can_count_processes(place, isolation) else None,
        "tmux": ["-f", f"{programs}/{TMUX_CONF}", "-S", f"{temporary}/.tmux.sock"],
    }
    trusted = authority_environ(spec, AUTHORITIES_INSIDE if inside else str(place.authorities))
    interpreter = str(Path(sys.executable).resolve())
    script = DOOR_INSIDE if inside else str(DOOR)
    return {
        "argv": [*sandbox(spec, place, isolation, grant.paths), interpreter, "-I", "-S", script, json.dumps(door)],
        "environ": trusted
        | cluster_environ(spec, access)
        | _environ(spec, home, temporary, _paths(place, isolation, programs))
        | dict(grant.environ),
        "environ_outside": {"PATH": os.defpath, "LANG": "C.UTF-8", **_mark(spec)},
    }


def _temporary(place: NativePlace, isolation: Isolation) -> str:
    inside = isolation.bwrap is not None
    return "/tmp" if inside else str(place.runtime or place.tmp)  # noqa: S108 - private to the kernel


def _access(place: NativePlace, isolation: Isolation) -> ClusterAccess:
    """Return the paths of the cluster's files as the kernel sees them."""
    folder = GUEST_INSIDE if isolation.bwrap is not None else str(place.guest)
    no_ssh = lacking_here(has_accounts=isolation.has_accounts)
    return ClusterAccess(folder, f"{_temporary(place, isolation)}/.cluster-environ", no_ssh)


def environment_of(place: NativePlace, isolation: Isolation) -> str:
    """Return the path of the kernel's Python environment, which may not be built yet; empty: it has none."""
    if place.environments is None:
        return ""
    return f"{ENVIRONMENTS_INSIDE if isolation.bwrap is not None else place.environments}/{ENVIRONMENT}"


def _paths(place: NativePlace, isolation: Isolation, programs: str) -> str:
    environment = environment_of(place, isolation)
    return f"{environment}/bin:{programs}" if environment else programs


def _link_folders(place: NativePlace) -> None:
    """Link the home to the kernel's folders, as nothing can be mounted. Raises StartFailed for a folder outside the
    home."""
    for bind in place.binds:
        inside = below_home(bind.target)
        if not inside:
            raise StartFailed(
                "Without a sandbox folders are in the home only: {path} cannot be made.",
                path=bind.target,
                code="mount-refused",
            )
        link = place.home / inside
        link.rmdir()
        link.symlink_to(bind.source)


def _start_of(spec: KernelSpec, home: str) -> str:
    """Return the working directory of programs, as the kernel sees it."""
    inside = below_home(spec.start_in)
    return f"{home}/{inside}" if inside else spec.start_in or home


def home_of(place: NativePlace, isolation: Isolation) -> str:
    """Return the path of the home folder, as the kernel sees it."""
    return HOME if isolation.bwrap is not None else str(place.home)


def _interpreter(place: NativePlace, isolation: Isolation) -> Path:
    """Return the agent's own Python; the system's if the kernel's user cannot reach it."""
    own = Path(sys.executable).resolve()
    reachable = isolation.bwrap is not None or place.uid is None or open_to_all(own)
    return own if reachable else Path("/usr/bin/python3")


def _shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _can_count_processes(place: NativePlace, isolation: Isolation) -> bool:
    """Return whether a limit of processes can be set: it counts all processes of a user, so the kernel needs its own
    user or user namespace."""
    version = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
    if place.uid == KERNEL_USER:  # a user shared by all kernels that mount folders
        return False
    return place.uid is not None or (isolation.bwrap is not None and version >= _COUNTS_PER_NAMESPACE)


def _environ(spec: KernelSpec, home: str, temporary: str, paths: str) -> dict[str, str]:
    cores = str(max(Slots.parse(spec.slots)["cpu"] // MILLI, 1))
    environ = {
        "LANG": "C.UTF-8",
        "PATH": f"{home}/.local/bin:{paths}:/usr/local/bin:/usr/bin:/bin",
        "OMP_NUM_THREADS": cores,
        "OPENBLAS_NUM_THREADS": cores,
        "NPROC": cores,
    }
    own = {
        "SHELL": _shell(),
        "HOME": home,
        "USER": "work",
        "LOGNAME": "work",
        "TMPDIR": temporary,
    }
    return environ | spec.environ | own | _mark(spec)


def _mark(spec: KernelSpec) -> dict[str, str]:
    """Return the variable that identifies the kernel's processes."""
    return {"BACKENDAI_KERNEL_ID": str(spec.kernel_id)}
