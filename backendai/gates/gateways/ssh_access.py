"""SSH access to sessions: addresses, commands to copy, and the session's own key."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import Prefetch
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.names import FOLDERS
from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.capabilities import capabilities_of
from backendai.domain.compute.models import ComputeSession, Kernel, SessionSshKey
from backendai.gates.gateways.site_keys import fingerprint_of, host_key, private_text, public_text, session_key

HOME = "/home/work"
_MOST_KERNELS = 32  # what a reader can look through; the others follow the same pattern


@dataclass(frozen=True, slots=True)
class SshSite:
    """The address of the SSH gate, and its host key."""

    host: str
    port: int
    fingerprint: str
    public_key: str

    @property
    def known_hosts(self) -> str:
        """The line of the gate for ``~/.ssh/known_hosts``."""
        name = self.host if self.port == 22 else f"[{self.host}]:{self.port}"
        return f"{name} {self.public_key}"

    def far(self, name: str) -> str:
        """Return the address of a session for commands that append a path.

        An IPv6 address is in brackets, and quoted for zsh.
        """
        return f"'{name}@[{self.host}]'" if ":" in self.host else f"{name}@{self.host}"

    def address(self, name: str) -> str:
        """Return the arguments of ``ssh`` that lead to a session."""
        return f"{name}@{self.host}" if self.port == 22 else f"-p {self.port} {name}@{self.host}"

    def config(self, names: list[str]) -> str:
        """Return a block of ``~/.ssh/config`` for each of these sessions."""
        blocks = [f"Host {name}\n    HostName {self.host}\n    Port {self.port}\n    User {name}\n" for name in names]
        return "\n".join(blocks)


def site_for(portal_host: str) -> SshSite | None:
    """Return the SSH gate for a user who reaches the portal under this host name; None if there is no gate."""
    if not settings.SSH_PROCESSES:
        return None
    public = public_text(host_key())
    name = settings.SSH_PUBLIC_HOST.strip("[]") or urlsplit(f"//{portal_host}").hostname or portal_host
    return SshSite(name, settings.SSH_PUBLIC_PORT, fingerprint_of(public), public)


def lines_for(site: SshSite, name: str, home: str = HOME) -> dict[str, str]:
    """Return the commands for a session, by purpose.

    ``home`` is its home folder, which VS Code opens; empty: unknown, and VS Code asks.
    """
    port = "" if site.port == 22 else f" -P {site.port}"
    far, tunnel = site.far(name), site.address(name)
    authority = far.strip("'")
    remote = "ssh" if site.port == 22 else f"'ssh -p {site.port}'"
    return {
        "shell": f"ssh {tunnel}",
        "sftp": f"sftp{port} {far}",
        "scp": f"scp{port} FILE {far}:",
        "rsync": f"rsync -e {remote} -a FOLDER/ {far}:FOLDER/",
        "forward": f"ssh -L 8000:localhost:8000 {tunnel}",
        "vscode": f"vscode://vscode-remote/ssh-remote+{authority}:{site.port}{home or '?windowId=_blank'}",
    }


def home_of(session: ComputeSession) -> str:
    """Return the path of the home folder for the session's programs.

    Empty for a native session, whose path only its agent knows. One query.
    """
    kernel = session.kernels.select_related("agent").filter(rank=0).first()
    is_native = kernel is not None and kernel.agent is not None and Capability.NATIVE in capabilities_of(kernel.agent)
    return "" if is_native else HOME


def other_kernels(site: SshSite, session: ComputeSession) -> list[str]:
    """Return the commands for the sub kernels of a cluster session, at most 32. One query."""
    if session.cluster_size < 2:
        return []
    hostnames = session.kernels.order_by("rank").values_list("hostname", flat=True)[1 : _MOST_KERNELS + 1]
    return [f"ssh {site.address(f'{session.name}+{hostname}')}" for hostname in hostnames]


def forward_to(site: SshSite, name: str, port: int) -> str:
    """Return the command that forwards a port of a session to the same port of the user's machine."""
    return f"ssh -N -L {port}:localhost:{port} {site.address(name)}"


def folder_lines_for(site: SshSite) -> dict[str, str]:
    """Return the commands that copy files into the user's folders.

    Files outside of these are deleted with the session.
    """
    lines = lines_for(site, FOLDERS)
    rsync = lines["rsync"].replace(" FOLDER/ ", " DIRECTORY/ ")
    return {"sftp": lines["sftp"], "scp": f"{lines['scp']}FOLDER/", "rsync": rsync}


def config_of(user: User, site: SshSite) -> str:
    """Return the ``ssh_config`` for the user's folders and live sessions, each with its sub kernels. Two queries."""
    live = ComputeSession.objects.visible_to(user).filter(owner=user).live().order_by("name")
    kernels = Prefetch("kernels", Kernel.objects.only("session", "rank", "hostname"))
    return site.config([FOLDERS, *_names_of(list(live.only("name").prefetch_related(kernels)))])


def config_for(site: SshSite, session: ComputeSession) -> str:
    """Return the ``ssh_config`` for a session and its sub kernels. One query."""
    return site.config(_names_of([session]))


def _names_of(sessions: list[ComputeSession]) -> list[str]:
    return [
        name
        for session in sessions
        for name in (
            session.name,
            *(f"{session.name}+{one.hostname}" for one in list(session.kernels.all())[1 : _MOST_KERNELS + 1]),
        )
    ]


def key_of(user: User, session: ComputeSession, *, renew: bool = False) -> tuple[str, str]:
    """Return the private key of the user's own session, and its fingerprint.

    With ``renew`` it is a new key, and the old one is refused. Audited. Raises NotFound for a session of others,
    Conflict for an ended one.
    """
    if session.owner_id != user.pk:
        raise NotFound("Only the owner of a session has its SSH key.")
    if session.is_terminal:
        raise Conflict("The session has ended: its SSH key opens nothing any more.", code="session-ended")
    with transaction.atomic():
        ComputeSession.objects.select_for_update().filter(pk=session.pk).first()
        row = SessionSshKey.objects.filter(session=session).first()
        version = (row.version if row else 1) + (1 if renew and row else 0)
        private = session_key(session.pk, version)
        fingerprint = fingerprint_of(public_text(private))
        values = {"version": version, "fingerprint": fingerprint, "created_at": timezone.now()}
        if row is None or row.fingerprint != fingerprint:
            # A new row: connections that were opened with the old key hold its id, and are cut.
            SessionSshKey.objects.filter(session=session).delete()
            SessionSshKey.objects.create(session=session, **values)
        action = "ssh-key.renew" if renew else "ssh-key.download"
        audit(user.pk, action, "session", [session.pk], fingerprint=fingerprint)
    return private_text(private), fingerprint
