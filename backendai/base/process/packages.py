"""Names the command that installs packages on this machine: apt on Debian and Ubuntu, dnf on Rocky, Alma and Fedora."""

from __future__ import annotations

from pathlib import Path

_OS_RELEASE = Path("/etc/os-release")
_APT, _DNF = {"debian", "ubuntu"}, {"fedora", "rhel", "centos"}
# What Debian calls otherwise. Docker's own repository has docker-ce for Rocky and Alma; Fedora has Docker itself.
_NAMES = {
    "docker.io": "docker-ce",
    "openssh-client": "openssh-clients",
    "openssh-sftp-server": "openssh-server",
    "postgresql-client": "postgresql",
    "iproute2": "iproute",
    "redis-server": "redis",
    "linux-image-cloud-amd64": "kernel",
}
_FEDORA = {"docker.io": "moby-engine", "redis-server": "valkey"}


def install_command(*packages: str, lean: bool = False, os_release: Path | None = None) -> str:
    """Return the command that installs packages, named as on Debian; ``lean``: without what they recommend.

    Where neither apt nor dnf is known, it is a sentence without a command.
    """
    ids = _ids(os_release or _OS_RELEASE)
    if ids & _APT:
        return f"apt install {'--no-install-recommends ' * lean}{' '.join(packages)}"
    if ids & _DNF:
        names = _NAMES | (_FEDORA if "rhel" not in ids and "centos" not in ids else {})
        wanted = dict.fromkeys(names.get(name, name) for name in packages)
        return f"dnf install {'--setopt=install_weak_deps=False ' * lean}{' '.join(wanted)}"
    return f"install {', '.join(packages)}"


def _ids(os_release: Path) -> set[str]:
    """Return the ids of this Linux distribution and of its parents."""
    try:
        lines = os_release.read_text().splitlines()
    except OSError:
        return set()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return set(f"{values.get('ID', '')} {values.get('ID_LIKE', '')}".replace('"', "").replace("'", "").split())
