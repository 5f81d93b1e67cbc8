"""Isolates native kernels by bubblewrap if it works; otherwise kernels are only separate process trees.

An agent of root gives every kernel its own user id; the kernels of other agents have the agent's.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backendai.agent.backends.guest_host import INSIDE as GUEST_INSIDE
from backendai.agent.backends.shared.authorities import INSIDE as AUTHORITIES_INSIDE
from backendai.agent.mounts.kernel_mounts import Bind
from backendai.base.paths.installation import CODE
from backendai.base.paths.mount_targets import HOME
from backendai.base.process.slowness import allowed
from backendai.base.wire.messages import KernelSpec

_TRIAL_SECONDS = 10.0
DOOR = Path(__file__).with_name("first_process.py")
DOOR_INSIDE = "/run/kernel/door.py"
BIN_INSIDE = "/run/kernel/bin"
ENVIRONMENTS_INSIDE = "/run/kernel/environments"
GUEST = "guest"
USER_INSIDE = 1000
_SYSTEM = "/usr"
_ROOT_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_READABLE = (
    "/opt",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/fonts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/pki",
    "/etc/profile",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
)


@dataclass(frozen=True, slots=True)
class Isolation:
    """The available isolation. ``bwrap``: its path; None if missing or not working (``why_not``). ``root``: the agent
    is root. ``sized_tmpfs``: this bubblewrap can limit /dev/shm."""

    bwrap: str | None
    why_not: str
    root: bool
    sized_tmpfs: bool = False

    @property
    def walks_alone(self) -> bool:
        """Whether kernels have users of their own and access their folders directly, without mounts."""
        return self.root and self.bwrap is None

    @property
    def has_accounts(self) -> bool:
        """Whether the users of kernels are in the table of users that kernels see. The sandbox has a table of its own;
        without it the users of an agent of root are in none, and another agent's own user may lack too."""
        return self.bwrap is not None or (not self.root and _is_known(os.geteuid()))


@dataclass(frozen=True, slots=True)
class NativePlace:
    """One kernel's place on this machine. ``uid``: its user (None: the agent's). ``runtime``: a short folder outside
    ``folder`` for sockets and temporary files, only without a sandbox. ``binds``: its folders. ``environments``: the
    folder of its Python environments, if any."""

    folder: Path
    uid: int | None
    runtime: Path | None
    binds: tuple[Bind, ...] = ()
    environments: Path | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    @property
    def tables(self) -> Path:
        return self.folder / "etc"

    @property
    def guest(self) -> Path:
        return self.folder / GUEST

    @property
    def authorities(self) -> Path:
        return self.folder / "ca"


def probe() -> Isolation:
    """Test bubblewrap once, with the namespaces of kernels."""
    root = os.geteuid() == 0
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return Isolation(None, "bubblewrap (bwrap) is not installed", root)
    trial = [bwrap, *_namespaces(root), "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    longest = allowed(_TRIAL_SECONDS)
    try:
        result = subprocess.run(trial, capture_output=True, text=True, timeout=longest, check=False)
        usage = subprocess.run([bwrap, "--help"], capture_output=True, text=True, timeout=longest, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Isolation(None, f"bubblewrap does not work here ({error})", root)
    if result.returncode:
        return Isolation(None, f"bubblewrap does not work here ({result.stderr.strip()})", root)
    return Isolation(bwrap, "", root, sized_tmpfs="--size" in usage.stdout + usage.stderr)


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def open_to_all(path: Path) -> bool:
    """Return whether every user can access ``path``."""
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


def sandbox(spec: KernelSpec, place: NativePlace, isolation: Isolation, devices: Sequence[str] = ()) -> list[str]:
    """Return the sandbox's part of the command, before the kernel's own; empty without bubblewrap. ``devices``:
    additional device files."""
    if isolation.bwrap is None:
        return []
    size = ["--size", str(spec.shm_bytes)] if isolation.sized_tmpfs and spec.shm_bytes else []
    readable = [word for path in _READABLE for word in ("--ro-bind-try", path, path)]
    tables = [
        w for name in ("passwd", "group", "hosts") for w in ("--ro-bind", f"{place.tables}/{name}", f"/etc/{name}")
    ]
    authorities = [*_folders("/etc/backendai"), "--ro-bind", str(place.authorities), AUTHORITIES_INSIDE]
    return [
        isolation.bwrap,
        *_namespaces(isolation.root),
        *("--hostname", spec.hostname),
        *_folders("/etc", "/etc/ssl", "/home", "/run", "/run/kernel"),
        *_system_folders(),
        *readable,
        *_covers(_private(place)),
        *tables,
        *(authorities if spec.authorities else ()),
        *("--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", "/dev/shm"),  # noqa: S108
        *_folders(*sorted({str(Path(path).parent) for path in devices} - {"/dev"})),
        *(word for path in devices for word in ("--dev-bind-try", path, path)),
        *("--ro-bind", str(DOOR), DOOR_INSIDE, "--ro-bind", str(place.programs), BIN_INSIDE),
        *("--ro-bind", str(place.guest), GUEST_INSIDE),
        *(("--ro-bind", str(place.environments), ENVIRONMENTS_INSIDE) if place.environments else ()),
        *("--bind", str(place.tmp), "/tmp", "--bind", str(place.home), HOME, "--chdir", "/"),  # noqa: S108
        *_folders(*_parents_outside_home(place.binds)),
        *(w for one in place.binds for w in ("--ro-bind" if one.read_only else "--bind", one.source, one.target)),
        "--",
    ]


def _namespaces(root: bool) -> list[str]:
    """Return the options for namespaces. The network stays the machine's, so that the gateway reaches the kernel's
    ports. The kernel's first process has pid 1 inside: no process inside can kill it, and all end with it."""
    words = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    if root:  # needed only for the change to the kernel's user, which drops these capabilities
        return [*words, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*words, "--unshare-user", "--uid", str(USER_INSIDE), "--gid", str(USER_INSIDE)]


def _system_folders() -> list[str]:
    words = ["--ro-bind", _SYSTEM, _SYSTEM]
    for name in _ROOT_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    prefix = Path(sys.base_prefix)
    return words if prefix.is_relative_to(_SYSTEM) else [*words, *_interpreter(prefix)]


def _interpreter(prefix: Path) -> list[str]:
    parents = [str(parent) for parent in reversed(prefix.parents[:-1])]
    return [*_folders(*parents), "--ro-bind", str(prefix), str(prefix)]


def _private(place: NativePlace) -> list[Path]:
    """Return the platform's own folders: its code, its data and the agent's data, which contain keys and the
    database."""
    folders = [CODE, place.folder.parent.parent]  # the agent's data folder is two levels above
    if data := os.environ.get("BACKENDAI_DATA"):
        folders.append(Path(data))
    return sorted({folder.resolve() for folder in folders})


def _covers(folders: Sequence[Path]) -> Iterator[str]:
    """Yield the options that hide these folders, where visible, by empty ones; Python's own folder stays."""
    prefix = Path(sys.base_prefix)
    shown = [Path(_SYSTEM), *(Path("/", name) for name in _ROOT_FOLDERS), Path(_READABLE[0]), prefix]
    covered = list[Path]()
    for folder in folders:  # outer folders first
        is_shown = any(folder.is_relative_to(path) for path in shown) and folder.is_dir()
        is_covered = any(folder.is_relative_to(path) for path in covered) and not folder.is_relative_to(prefix)
        if not is_shown or is_covered or folder in (Path(_SYSTEM), prefix):
            continue
        covered.append(folder)
        yield from ("--tmpfs", str(folder))
        if prefix.is_relative_to(folder):
            yield from _interpreter(prefix)
        yield from ("--remount-ro", str(folder))


def _parents_outside_home(binds: Sequence[Bind]) -> list[str]:
    """Return the parents of mount points such as ``/data/corpus``; bubblewrap would create them for root only."""
    targets = [Path(one.target) for one in binds if not Path(one.target).is_relative_to(HOME)]
    return sorted({str(parent) for target in targets for parent in target.parents if parent != Path("/")})


def _folders(*paths: str) -> list[str]:
    """Return the options that create folders which everybody can enter; bubblewrap's own defaults depend on the
    content."""
    return [word for path in paths for word in ("--dir", path)]
