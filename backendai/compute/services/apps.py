"""The apps of a session: which there are, where each lives, and the one-time code by which a person gets in.

A code is sealed with the portal's secret, so that nobody can read or forge it, and good for half a minute. That it is
used once only is seen to by the app proxy, which writes down each code that it has taken.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from backendai.accounts.models import User
from backendai.accounts.standing import Standing
from backendai.cluster.app_domains import app_domain_of, origin_of
from backendai.cluster.capabilities import capabilities_of, why_not
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.querysets import SessionQuerySet
from backendai.compute.status import Status
from backendai.core.errors import Conflict, NotFound
from backendai.core.messages import Message
from backendai.core.service_ports import ServicePort, preopen_service, service_ports_of
from backendai.wire.capabilities import Capability

CODE_SECONDS = 30
ENTER_PATH = "/.backendai/enter"
_LABEL_DIGITS = re.compile(r"[0-9a-f]{12}")
_SHOWN = frozenset({"http", "preopen", "tcp", "vnc", "rdp"})
_IN_BROWSERS = frozenset({"http", "preopen"})
_TITLES = {
    "jupyterlab": "JupyterLab",
    "jupyter": "Jupyter Notebook",
    "tensorboard": "TensorBoard",
    "vscode": "VS Code",
    "code-server": "VS Code",
    "mlflow": "MLflow",
    "rstudio": "RStudio",
    "ttyd": Message("Terminal (ttyd)"),
}
# The name of a service is all that the portal knows of it, so a name with one of these words counts as a shell.
_SHELL_WORDS = (
    "jupyter", "notebook", "vscode", "code-server", "theia", "rstudio", "ttyd", "term", "shell", "ssh", "desktop",
    "vnc",
)  # fmt: skip
_NOT_RUNNING = ("session-not-running", Message("Apps open while the session runs."))
_NO_BROWSER = ("not-for-browsers", Message("This service does not speak HTTP, so a browser cannot open it."))
_IMPOSSIBLE = "apps-impossible"


@dataclass(frozen=True, slots=True)
class App:
    """A service of a session. ``code`` and ``reason`` say why it cannot be opened now; both are empty when it can.
    ``shares_network``: what listens on its port can be reached by everybody on the agent's machine."""

    name: str
    title: str
    protocol: str
    port: int
    url: str
    code: str = ""
    reason: str = ""
    shares_network: bool = False

    @property
    def gives_shell(self) -> bool:
        """Whether its users can run commands, as far as its name says."""
        return any(word in self.name for word in _SHELL_WORDS)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where to send the code (``POST`` with the field ``code``), within ``seconds`` and once."""

    app: App
    url: str
    code: str
    seconds: int = CODE_SECONDS


@dataclass(frozen=True, slots=True)
class Claims:
    """What a code says. ``entry_id`` is its own name, by which it is known when it comes a second time; ``portal`` the
    host (with port) of the portal whose pages may hand it over."""

    entry_id: UUID
    user_id: UUID
    kernel_id: UUID
    generation: int
    service: str
    port: int
    host: str
    standing: Standing
    portal: str = ""


class CodeRefused(Exception):
    """The code is forged, too old, or for something else."""


def apps_of(session: ComputeSession, kernel: Kernel | None) -> list[App]:
    """Return the apps, given the main kernel (with its agent): what can be opened, and what cannot and why."""
    if not session.kind.has_services:
        return []
    obstacle = _obstacle(session, kernel)
    found = [one for one in service_ports_of(session.image.effective_labels) if one.protocol in _SHOWN]
    found += [preopen_service(port) for port in session.preopen_ports]
    agent = kernel.agent if kernel else None
    is_native = agent is not None and Capability.NATIVE in capabilities_of(agent)
    return [_app(session, one, obstacle, is_native) for one in found]


def has_apps(session: ComputeSession) -> bool:
    """Return whether its image, or its launch, brings any app."""
    services = service_ports_of(session.image.effective_labels)
    return session.kind.has_services and (
        bool(session.preopen_ports) or any(one.protocol in _SHOWN for one in services)
    )


def app_logs_of(session: ComputeSession, kernel: Kernel | None) -> list[tuple[str, str]]:
    """Return name and title of the apps whose output can be read, given the main kernel (with its agent): those that
    the image starts in a container."""
    agent = kernel.agent if kernel else None
    if not session.is_running or agent is None or why_not(agent, Capability.APPS):
        return []
    found = service_ports_of(session.image.effective_labels)
    return [(one.name, _TITLES.get(one.name, one.name)) for one in found if one.protocol in _SHOWN]


def make_entry(
    user: User, session: ComputeSession, name: str, standing: Standing, now: datetime, *, portal: str = ""
) -> Entry:
    """Return the way into an app for a person who may see the session. ``portal`` is the host by which the person
    reaches the portal. Raises NotFound (no such app), Conflict (it cannot be opened now)."""
    kernel = main_kernel(session)
    app = next((one for one in apps_of(session, kernel) if one.name == name), None)
    if app is None or kernel is None:
        raise NotFound("This session has no app named {name}.", name=name[:32], code="no-such-app")
    if app.code:
        raise Conflict(app.reason, code=app.code)
    claims = Claims(
        uuid.uuid4(),
        user.pk,
        kernel.pk,
        kernel.generation,
        app.name,
        app.port,
        host_of(session, app.name),
        standing,
        portal.lower(),
    )
    return Entry(app, f"{app.url}{ENTER_PATH}", _seal(claims, now))


def read_code(code: str, now: datetime) -> Claims:
    """Return what a code says; raises CodeRefused."""
    try:
        said = json.loads(_sealer().decrypt_at_time(code.encode(), ttl=CODE_SECONDS, current_time=int(now.timestamp())))
    except (InvalidToken, ValueError) as error:
        raise CodeRefused from error
    return Claims(
        entry_id=UUID(said["id"]),
        user_id=UUID(said["user"]),
        kernel_id=UUID(said["kernel"]),
        generation=said["generation"],
        service=said["service"],
        port=said["port"],
        host=said["host"],
        standing=Standing(login=said["login"], token=said["token"], key_pair=said.get("key_pair", "")),
        portal=said.get("portal", ""),
    )


def main_kernel(session: ComputeSession) -> Kernel | None:
    """Return the session's main kernel with its agent: the services of a cluster are those of its main kernel."""
    kernel: Kernel | None = session.kernels.select_related("agent").filter(rank=0).first()
    return kernel


def host_of(session: ComputeSession, service: str) -> str:
    """Return the host name of an app: one origin for each service of each session, under its group's domain."""
    return f"{service}-{session.pk.hex[:12]}.{app_domain(session)}"


def app_domain(session: ComputeSession) -> str:
    """Return the domain under which the apps of this session live: its group's own, else the site's."""
    return app_domain_of(session.resource_group.app_domain)


def label_of(session: ComputeSession, service: str) -> str:
    """Return the first part of an app's host name."""
    return host_of(session, service).partition(".")[0]


def behind_label(label: str) -> tuple[SessionQuerySet, str] | None:
    """Return the sessions (one at most) and the service that the first part of a host name stands for, or None."""
    service, _, digits = label.rpartition("-")
    if not service or not _LABEL_DIGITS.fullmatch(digits):
        return None
    least, most = UUID(hex=digits.ljust(32, "0")), UUID(hex=digits.ljust(32, "f"))
    return ComputeSession.objects.filter(pk__range=(least, most)), service


def _obstacle(session: ComputeSession, kernel: Kernel | None) -> tuple[str, str]:
    if session.status != Status.RUNNING or kernel is None or kernel.agent is None:
        return _NOT_RUNNING
    reason = why_not(kernel.agent, Capability.APPS)
    return (_IMPOSSIBLE, reason) if reason else ("", "")


def title_of(service: str) -> str:
    """Return what people call a service of this name."""
    return _TITLES.get(service, service)


def _app(session: ComputeSession, service: ServicePort, obstacle: tuple[str, str], is_native: bool) -> App:
    code, reason = _NO_BROWSER if service.protocol not in _IN_BROWSERS else obstacle
    url = origin_of(host_of(session, service.name))
    return App(service.name, title_of(service.name), service.protocol, service.port, url, code, reason, is_native)


def _seal(claims: Claims, now: datetime) -> str:
    said: dict[str, Any] = {
        "id": str(claims.entry_id),
        "user": str(claims.user_id),
        "kernel": str(claims.kernel_id),
        "generation": claims.generation,
        "service": claims.service,
        "port": claims.port,
        "host": claims.host,
        "login": claims.standing.login,
        "token": claims.standing.token,
        "key_pair": claims.standing.key_pair,
        "portal": claims.portal,
    }
    return _sealer().encrypt_at_time(json.dumps(said).encode(), current_time=int(now.timestamp())).decode()


def _sealer() -> Fernet:
    key = hashlib.sha256(b"app entry\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
