"""Finds debootstrap and what it needs; fetches it into a folder of the build where this machine does not have it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from images.builder.engine import OnLine, run_command
from images.builder.outcome import explain_failure
from images.builder.progress import Failure
from images.builder.site_config import AptSource, Distribution, as_stanza

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"  # often not on the PATH of an account that became root
REGISTRY_FIX = "let Docker reach a registry (registry-mirrors in its daemon.json)"
KEYRINGS = {
    "debian": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
}
# What apt changes lies in the folder; the machine's own hooks after an update would change the machine.
APT_SETTINGS = """\
Dir::State "{folder}/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{folder}/sources";
Debug::NoLocking "true";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Install-Pkgs;
"""


def find_mirror(reason: str, distribution: Distribution, sources: Sequence[AptSource]) -> AptSource:
    """Return the source whose first address is the mirror; raise a Failure, which begins with ``reason``, when
    debootstrap cannot work here."""
    mirror = next((source for source in sources if distribution.suite in source.suites), None)
    if mirror is None:
        sentence = f"{reason}: this machine has no package sources of Debian or Ubuntu."
        raise Failure("no-network", sentence, f"Make the images on another machine, or {REGISTRY_FIX}.")
    if os.geteuid() != 0:
        sentence = f"{reason}: debootstrap must run as root."
        raise Failure("root-needed", sentence, f"Run sudo bin/build-images once, or {REGISTRY_FIX}.")
    keyring = keyring_of(mirror, distribution)
    if keyring and not Path(keyring).is_file():
        sentence = f"{reason}: {keyring} is missing, and packages cannot be verified without it."
        package = f"{distribution.id}-archive-keyring" if distribution.id == "debian" else "ubuntu-keyring"
        raise Failure("keyring-missing", sentence, f"Install it: apt-get install -y {package}")
    return mirror


def keyring_of(mirror: AptSource, distribution: Distribution) -> str:
    """Return the file with the keys that sign the mirror's packages; empty where the machine trusts it unsigned."""
    return "" if mirror.trusted else mirror.signed_by or KEYRINGS.get(distribution.id, "")


def provide_debootstrap(
    reason: str, folder: Path, mirror: AptSource, environ: Mapping[str, str], log: TextIO, on_line: OnLine
) -> dict[str, str]:
    """Return the environment in which debootstrap is found, after fetching it into ``folder`` where it is missing.

    Fetching takes a few seconds and about 10 MB, as root; nothing outside of the folder changes. Raises a Failure.
    """
    path = f"{environ.get('PATH', os.defpath)}:{SYSTEM_FOLDERS}"
    if shutil.which("debootstrap", path=path):
        return dict(environ) | {"PATH": path}
    missing = next((name for name in ("apt-get", "dpkg-deb") if shutil.which(name, path=path) is None), None)
    if missing:
        sentence = f"{reason}: debootstrap is not installed, and without {missing} it cannot be fetched."
        fix = f"Install debootstrap with the package manager of this machine, or {REGISTRY_FIX}."
        raise Failure("debootstrap-missing", sentence, fix)
    environ = dict(environ) | {"PATH": path, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    configuration = _write_apt_settings(folder, mirror)
    # What apt would install, so that wget, which debootstrap needs, comes along where it is missing.
    options = ["--yes", "--no-install-recommends", "--reinstall", "--download-only"]
    for command in (["update", "--error-on=any"], ["install", *options, "debootstrap"]):
        _run(reason, ["apt-get", "-c", str(configuration), "-q", *command], environ, log, on_line)
    return _unpack(reason, folder, environ, log, on_line)


def _write_apt_settings(folder: Path, mirror: AptSource) -> Path:
    folder.chmod(0o755)  # apt fetches as an account without rights, which must reach its own folders
    for name in ("state/lists/partial", "cache/archives/partial", "sources"):
        (folder / name).mkdir(parents=True)
    (folder / "sources" / "mirror.sources").write_text(as_stanza(mirror), encoding="utf-8")
    configuration = folder / "apt.conf"
    configuration.write_text(APT_SETTINGS.format(folder=folder), encoding="utf-8")
    return configuration


def _unpack(reason: str, folder: Path, environ: Mapping[str, str], log: TextIO, on_line: OnLine) -> dict[str, str]:
    root = folder / "root"
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        _run(reason, ["dpkg-deb", "--extract", str(package), str(root)], environ, log, on_line)
    libraries = sorted({str(path.parent) for path in root.rglob("*.so.*")})
    found = {
        "PATH": f"{root}/usr/sbin:{root}/usr/bin:{environ['PATH']}",
        "DEBOOTSTRAP_DIR": f"{root}/usr/share/debootstrap",
    }
    return dict(environ) | found | ({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {})


def _run(reason: str, command: Sequence[str], environ: Mapping[str, str], log: TextIO, on_line: OnLine) -> None:
    status, tail = run_command(command, environ, log, on_line)
    if status == 0:
        return
    failure = explain_failure(f"{reason}: fetching debootstrap failed", tail, log.name)
    if failure.code == "build-failed":
        failure.code = "debootstrap-missing"
        failure.fix = f"Install it (apt-get install -y debootstrap), or {REGISTRY_FIX}."
    raise failure
