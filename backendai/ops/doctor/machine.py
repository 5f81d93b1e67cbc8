"""Checks of the machine itself: Python, disk, rights, programs, clock."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from backendai.base.process.packages import install_command
from backendai.ops.doctor.check import Check, ok, problem, warning

_GIB = 2**30
_LEAST_FREE = 1 * _GIB
_COMFORTABLE_FREE = 10 * _GIB
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_INOTIFY = 1024
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
_TIMEX_BYTES = 512
# As kernels get it: the network stays the machine's, and a trial that asked for one would fail in many containers.
_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts")
_SANDBOX_TRIAL = ("bwrap", *_NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true")


def python_version(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    """Check that Python is new enough."""
    said = "Python " + ".".join(map(str, version))
    if version < (3, 11):
        return problem("python", f"{said} is too old", "Install Python 3.11 or newer and delete .venv.")
    return ok("python", said)


def data_folder(path: Path) -> Check:
    """Check that the data folder is writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        fix = f"Give this user the folder (chown -R {os.getuid()} {path}) or name another with BACKENDAI_DATA."
        return problem("data folder", f"{path} cannot be written: {error.strerror}", fix)
    return ok("data folder", f"{path} can be written")


def free_disk(path: Path, free: int | None = None) -> Check:
    """Check that there is disk space for the database, logs and home folders."""
    if free is None:
        while not path.exists():
            path = path.parent
        free = shutil.disk_usage(path).free
    said = f"{free / _GIB:.1f} GiB are free at {path}"
    if free < _LEAST_FREE:
        return problem("disk", said, "Free some disk space, or name a folder on another disk with BACKENDAI_DATA.")
    if free < _COMFORTABLE_FREE:
        return warning("disk", said, "Images and scratch folders fill disks fast: have at least 10 GiB free.")
    return ok("disk", said)


def privileges(uid: int | None = None) -> Check:
    """Check whether this user has the rights for full isolation of sessions."""
    if (os.getuid() if uid is None else uid) == 0:
        return ok("rights", "running as root: limits of scratch folders and firewall rules can be set")
    message = "not root: no size limit on scratch folders, no firewall rules between sessions and this machine"
    return warning("rights", message, "Run the agent as root where users do not trust each other.")


def inotify(setting: Path = _INOTIFY) -> Check:
    """Check that one session cannot use up the inotify instances of all."""
    count = int(setting.read_text()) if setting.exists() else _ENOUGH_INOTIFY
    said = f"{count} inotify instances are shared by all sessions in containers"
    if count < _ENOUGH_INOTIFY:
        fix = "sysctl -w fs.inotify.max_user_instances=8192, also in a file in /etc/sysctl.d/"
        return warning("inotify", f"{said}: one session can take them all", fix)
    return ok("inotify", said)


def programs(find: Callable[[str], str | None] = shutil.which) -> list[Check]:
    """Check that the programs for single features are installed."""
    needs = {
        "iptables": ("iptables", "sessions can reach services of this machine"),
        "mkfs.ext4": ("e2fsprogs", "scratch folders have no size limit"),
        "tmux": ("tmux", "terminals of native-process sessions end when the browser disconnects"),
    }
    checks = []
    for program, (package, consequence) in needs.items():
        if find(program) or find(f"/usr/sbin/{program}"):
            checks.append(ok(program, "is installed"))
        else:
            checks.append(warning(program, f"is missing: {consequence}", install_command(package)))
    return checks


def loop_devices(control: Path = Path("/dev/loop-control")) -> Check:
    """Check that loop devices exist, which limit the size of home folders."""
    if control.exists():
        return ok("loop devices", "can be made")
    fix = "modprobe loop (on the host itself when this is a container)"
    return warning("loop devices", f"{control} is missing: scratch folders have no size limit", fix)


def bubblewrap(trial: tuple[str, ...] = _SANDBOX_TRIAL) -> Check:
    """Check that the sandbox of native sessions starts."""
    if not shutil.which(trial[0]):
        message = "is missing: sessions without Docker cannot be isolated"
        return warning("bubblewrap", message, install_command("bubblewrap"))
    done = subprocess.run(trial, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        fix = "Allow user namespaces: sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1"
        return warning("bubblewrap", f"cannot make a sandbox here ({reason})", fix)
    return ok("bubblewrap", "can make a sandbox")


def port(host: str, number: int) -> Check:
    """Check that the portal's port is free, or in use (supposedly by the portal)."""
    try:
        with socket.create_connection((host, number), timeout=2):
            return ok("port", f"something listens on {host}:{number}")
    except OSError:
        pass
    try:
        with socket.create_server((host, number)):
            return ok("port", f"{host}:{number} is free")
    except OSError as error:
        message = f"{host}:{number} cannot be used: {error.strerror}"
        return problem("port", message, "Choose another with --port N or BACKENDAI_PORT.")


def clock(state: int | None = None, now: float | None = None) -> Check:
    """Check that the clock is plausible and synchronized, as tickets between machines are valid for half a minute."""
    newest = Path(__file__).stat().st_mtime
    if (time.time() if now is None else now) < newest:
        return problem("clock", "the clock is behind the date of these program files", "Set the clock (date -s, NTP).")
    if state is None:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state == _UNSYNCHRONISED:
        message = "no time service keeps the clock right; several machines must agree within a few seconds"
        return warning("clock", message, f"{install_command('chrony')} on every machine")
    return ok("clock", "is kept in time")
