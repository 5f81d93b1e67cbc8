"""Files by which the kernels of a session reach each other: hosts, MPI host files, SSH without passwords.

They lie beside the guest agent's files, in a folder that kernels cannot change. The image's own ``sshd`` runs as the
kernel's user. A shell script saves the kernel's variables at its start and restores them in every login.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backendai.agent.backends.base import SH
from backendai.base.core.ssh_keys import key_of, private_text, public_text
from backendai.base.wire.cluster_network import SSH_PORT, ClusterKeys, Peer
from backendai.base.wire.messages import HomeFile, KernelSpec

CLIENT, SERVER = "/usr/bin/ssh", "/usr/sbin/sshd"
_SSH, _CONFIG = "ssh", ".ssh/config"
_LOOPBACK = "127.0.0.1"
_ALIAS = "kernels-of-this-session"  # an alias, as all kernels have the same host key
_NO_ACCOUNTS = (
    "Without bubblewrap kernels run as users without an account on the machine, whom SSH refuses: the kernels of this "
    "session cannot log in to each other by SSH until an administrator installs bubblewrap. Host files and variables "
    "are there."
)

# Arguments: the folder of these files, the file for the variables, and the command to execute.
_SERVE = r"""
folder=$1 kept=$2; shift 2
if [ -x /usr/sbin/sshd ]; then
  (umask 077; export -p >"$kept") && /usr/sbin/sshd -f "$folder/ssh/sshd_config" </dev/null
fi
exec "$@"
""".strip()

# Argument: the file with the variables. sshd passes the client's command in a variable.
_ENTER = r"""
. "$1"
cd "$HOME" || exit 1
shell=${SHELL:-/bin/sh}
[ -x "$shell" ] || shell=/bin/sh
[ -n "$SSH_ORIGINAL_COMMAND" ] && exec "$shell" -c "$SSH_ORIGINAL_COMMAND"
exec "$shell" -l
""".strip()


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The paths of these files in a backend's kernels. ``folder``: their folder. ``kept``: the file for a kernel's
    variables. ``no_ssh``: the reason why kernels cannot log in to each other; empty: they can."""

    folder: str
    kept: str
    no_ssh: str = ""


def write_cluster(folder: Path, spec: KernelSpec, access: ClusterAccess, *, owner: int | None) -> None:
    """Write the files of a cluster session into the folder; does nothing for other sessions. ``owner``: the kernel's
    user; None: the current user. Raises OSError."""
    if spec.keys is None:
        return
    _write(folder / "hosts.json", json.dumps([_described(peer) for peer in spec.peers], indent=1) + "\n", 0o644)
    _write(folder / "hostfile", "".join(f"{peer.hostname} slots={peer.slots}\n" for peer in spec.peers), 0o644)
    _write(folder / "hostfile.mpich", "".join(f"{peer.hostname}:{peer.slots}\n" for peer in spec.peers), 0o644)
    if not access.no_ssh:
        _write_ssh(folder / _SSH, spec, spec.keys, access, owner)


def cluster_environ(spec: KernelSpec, access: ClusterAccess) -> dict[str, str]:
    """Return the variables that name the host files for Open MPI and MPICH; none for a single kernel."""
    if spec.keys is None:
        return {}
    return {
        "OMPI_MCA_orte_default_hostfile": f"{access.folder}/hostfile",
        "PRTE_MCA_prte_default_hostfile": f"{access.folder}/hostfile",
        "HYDRA_HOST_FILE": f"{access.folder}/hostfile.mpich",
    }


def with_ssh(spec: KernelSpec, access: ClusterAccess, command: list[str]) -> list[str]:
    """Return the command, preceded by a start of ``sshd`` in cluster sessions whose image has it."""
    if spec.keys is None or access.no_ssh:
        return command
    return [SH, "-c", _SERVE, "cluster", access.folder, access.kept, *command]


def access_files(spec: KernelSpec, access: ClusterAccess) -> Iterator[HomeFile]:
    """Yield the files of the kernel's home: the spec's, and in cluster sessions an SSH configuration that takes
    precedence over the user's."""
    if spec.keys is None or access.no_ssh:
        yield from spec.files
        return
    theirs = "".join(f"\n{file.content}" for file in spec.files if file.path == _CONFIG)
    yield from (file for file in spec.files if file.path != _CONFIG)
    yield HomeFile(path=_CONFIG, mode=0o600, content=f"Include {access.folder}/{_SSH}/config\n{theirs}")


def lacking(missing: Collection[str], *, what: str = "Its image") -> str:
    """Return the message about missing SSH programs; empty if none is missing."""
    if not missing:
        return ""
    return (
        f"{what} has no {' and no '.join(sorted(missing))}: the kernels of this session cannot log in to each other "
        "by SSH. Host names, host files and variables are there."
    )


def lacking_here(*, has_accounts: bool) -> str:
    """Return why native kernels of a session cannot log in to each other on this machine; empty if they can.
    ``has_accounts``: their users are in the table of users, without which ``ssh`` and ``sshd`` refuse to work."""
    if not has_accounts:
        return _NO_ACCOUNTS
    return lacking([path.name for path in (Path(CLIENT), Path(SERVER)) if not path.exists()], what="This machine")


def _write_ssh(ssh: Path, spec: KernelSpec, keys: ClusterKeys, access: ClusterAccess, owner: int | None) -> None:
    ssh.mkdir(exist_ok=True)
    ssh.chmod(0o755)
    login, host = key_of(keys.login), key_of(keys.host)
    _write(ssh / "id_ed25519", private_text(login), 0o600, owner)
    _write(ssh / "id_ed25519.pub", f"{public_text(login)}\n", 0o644)
    _write(ssh / "host_key", private_text(host), 0o600, owner)
    _write(ssh / "authorized_keys", f"{public_text(login)} {spec.session_name}\n", 0o644)
    _write(ssh / "known_hosts", f"{_ALIAS} {public_text(host)}\n", 0o644)
    _write(ssh / "config", _client_config(spec, access), 0o644)
    _write(ssh / "sshd_config", _server_config(spec, access), 0o644)
    _write(ssh / "enter", f"{_ENTER}\n", 0o644)


def _described(peer: Peer) -> dict[str, object]:
    told = {"hostname": peer.hostname, "role": peer.role, "rank": peer.rank, "slots": peer.slots}
    return told | ({"address": peer.address} if peer.address else {})


def _client_config(spec: KernelSpec, access: ClusterAccess) -> str:
    names = " ".join(peer.hostname for peer in spec.peers)
    return _lines(
        (
            *(line for peer in spec.peers for line in _way_to(peer)),
            f"Host {names}",
            f"  HostKeyAlias {_ALIAS}",
            f"  IdentityFile {access.folder}/{_SSH}/id_ed25519",
            f"  UserKnownHostsFile {access.folder}/{_SSH}/known_hosts",
            "  IdentitiesOnly yes",
            "  PreferredAuthentications publickey",
            "  StrictHostKeyChecking yes",
            "  CheckHostIP no",
            "  UpdateHostKeys no",
            "  ConnectTimeout 10",
            "  ConnectionAttempts 5",  # a server starts with its kernel, possibly some 0.1 s later
            "  ServerAliveInterval 30",
            "  LogLevel ERROR",
            "Match all",
        )
    )


def _way_to(peer: Peer) -> Iterator[str]:
    yield f"Host {peer.hostname}"
    if address := peer.address or (_LOOPBACK if _is_native(peer) else ""):
        yield f"  HostName {address}"
    yield f"  Port {peer.ssh_port}"


def _is_native(peer: Peer) -> bool:
    return peer.ssh_port != SSH_PORT  # a native kernel has no network of its own, and so another port


def _server_config(spec: KernelSpec, access: ClusterAccess) -> str:
    own = next((peer for peer in spec.peers if peer.hostname == spec.hostname), Peer(hostname=spec.hostname))
    is_alone_here = _is_native(own) and not any(peer.address for peer in spec.peers)
    return _lines(
        (
            f"Port {own.ssh_port}",
            *([f"ListenAddress {_LOOPBACK}"] if is_alone_here else []),
            f"HostKey {access.folder}/{_SSH}/host_key",
            f"AuthorizedKeysFile {access.folder}/{_SSH}/authorized_keys",
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "PidFile none",
            "PrintMotd no",
            "PrintLastLog no",
            "X11Forwarding no",
            "MaxStartups 100",
            "MaxSessions 100",
            "Subsystem sftp /usr/lib/openssh/sftp-server",
            f"ForceCommand /bin/sh {access.folder}/{_SSH}/enter {access.kept}",
        )
    )


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _write(path: Path, text: str, mode: int, owner: int | None = None) -> None:
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as stream:
        stream.write(text)
        os.fchmod(stream.fileno(), mode)
        if owner is not None:
            os.fchown(stream.fileno(), owner, owner)
    new.replace(path)
