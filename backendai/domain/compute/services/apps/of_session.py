"""The apps of a session: which apps exist, their addresses, and the one-time code that opens an app.

A code is encrypted with the portal's secret and valid for half a minute. The app proxy records used codes, so that each
code works once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from backendai.base.core.app_arguments import allowed_arguments
from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message
from backendai.base.core.service_ports import ServicePort, preopen_service, service_ports_of
from backendai.base.wire.capabilities import Capability
from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.cluster.app_domains import app_domain_of, origin_of, program_url
from backendai.domain.cluster.capabilities import capabilities_of, why_not
from backendai.domain.compute.models import AppSetting, ComputeSession, Kernel
from backendai.domain.compute.querysets import SessionQuerySet
from backendai.domain.compute.services.apps.kinds import Category, kind_of, title_of
from backendai.domain.compute.status import Status

CODE_SECONDS = 30
ENTER_PATH = "/.backendai/enter"
NO_SETTINGS: Mapping[str, AppSetting] = {}
_LABEL_DIGITS = re.compile(r"[0-9a-f]{12}")
_SHOWN = frozenset({"http", "preopen", "tcp", "vnc", "rdp"})
_IN_BROWSERS = frozenset({"http", "preopen"})
# The portal knows only the name of a service, so a name with one of these words counts as a shell.
_SHELL_WORDS = (
    "jupyter", "notebook", "vscode", "code-server", "theia", "rstudio", "ttyd", "term", "shell", "ssh", "desktop",
    "vnc",
)  # fmt: skip
_NOT_RUNNING = ("session-not-running", Message("Apps open while the session runs."))
_NO_BROWSER = ("not-for-browsers", Message("This service does not speak HTTP, so a browser cannot open it."))
_IMPOSSIBLE = "apps-impossible"


@dataclass(frozen=True, slots=True)
class App:
    """A service of a session.

    ``code`` and ``reason``: why it cannot be opened now; both are empty if it can. ``shares_network``: every user of
    the agent's machine can reach its port. ``program_url``: where programs reach it with an access token.
    ``arguments``: current values of the arguments that users may set.
    ``usual_title``: the title unless a user has set another one.
    """

    name: str
    title: str
    protocol: str
    port: int
    url: str
    program_url: str = ""
    code: str = ""
    reason: str = ""
    shares_network: bool = False
    category: Category = Category.OTHER
    icon: str = "apps"
    arguments: Mapping[str, str] = field(default_factory=dict)
    usual_title: str = ""

    @property
    def gateway_command(self) -> str:
        """The shell command with which a JupyterLab elsewhere runs its kernels here; empty for other apps."""
        if "jupyter" not in self.name or not self.program_url:
            return ""
        return f'JUPYTER_GATEWAY_AUTH_TOKEN="$BAI_TOKEN" jupyter lab --gateway-url={self.program_url}'

    @property
    def gives_shell(self) -> bool:
        """Whether the service, judged by its name, lets users run commands."""
        return any(word in self.name for word in _SHELL_WORDS)


@dataclass(frozen=True, slots=True)
class AppEntry:
    """The address to which a browser sends the one-time code (``POST``, field ``code``), within ``seconds``."""

    app: App
    url: str
    code: str
    seconds: int = CODE_SECONDS


@dataclass(frozen=True, slots=True)
class Claims:
    """The decrypted contents of a one-time code.

    ``entry_id``: a unique ID, by which a second use is detected. ``portal``: host and port of the portal whose pages
    may submit the code.
    """

    entry_id: UUID
    user_id: UUID
    kernel_id: UUID
    generation: int
    service: str
    port: int
    host: str
    credential: Credential
    portal: str = ""


class CodeRefused(Exception):
    """The code is forged, expired, or for another app."""


def apps_of(session: ComputeSession, kernel: Kernel | None, own: Mapping[str, AppSetting] = NO_SETTINGS) -> list[App]:
    """Return the session's apps, each with the reason if it cannot be opened now.

    ``kernel``: the main kernel with its agent loaded (None: no kernel). ``own``: titles and arguments that users have
    set, by service.
    """
    if not session.kind.has_services:
        return []
    obstacle = _obstacle(session, kernel)
    found = [one for one in service_ports_of(session.image.effective_labels) if one.protocol in _SHOWN]
    found += [preopen_service(port) for port in session.preopen_ports]
    agent = kernel.agent if kernel else None
    is_native = agent is not None and Capability.NATIVE in capabilities_of(agent)
    return [_app(session, one, obstacle, is_native, own.get(one.name)) for one in found]


def has_apps(session: ComputeSession) -> bool:
    """Return whether the session has any app, from its image or its launch request."""
    services = service_ports_of(session.image.effective_labels)
    return session.kind.has_services and (
        bool(session.preopen_ports) or any(one.protocol in _SHOWN for one in services)
    )


def app_logs_of(session: ComputeSession, kernel: Kernel | None) -> list[tuple[str, str]]:
    """Return name and title of each app of the main kernel whose log can be read. These are the image's apps, while the
    session runs in a container."""
    agent = kernel.agent if kernel else None
    if not session.is_running or agent is None or why_not(agent, Capability.APPS):
        return []
    found = service_ports_of(session.image.effective_labels)
    return [(one.name, title_of(one.name)) for one in found if one.protocol in _SHOWN]


def settings_of(session: ComputeSession) -> dict[str, AppSetting]:
    """Return the titles and arguments that users have set for the session's apps, by service."""
    return {one.service: one for one in session.app_settings.all()}


def make_entry(
    user: User, session: ComputeSession, name: str, credential: Credential, now: datetime, *, portal: str = ""
) -> AppEntry:
    """Return the address and the one-time code that open an app.

    ``portal``: the host under which the user's browser reaches the portal. The caller checks that the user may see the
    session. Raises NotFound if there is no such app, Conflict if the app cannot be opened now.
    """
    kernel = main_kernel(session)
    app = next((one for one in apps_of(session, kernel, settings_of(session)) if one.name == name), None)
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
        credential,
        portal.lower(),
    )
    return AppEntry(app, f"{app.url}{ENTER_PATH}", _seal(claims, now))


def read_code(code: str, now: datetime) -> Claims:
    """Return the content of a code. Raises CodeRefused if the code is forged or expired."""
    try:
        content = json.loads(
            _sealer().decrypt_at_time(code.encode(), ttl=CODE_SECONDS, current_time=int(now.timestamp()))
        )
    except (InvalidToken, ValueError) as error:
        raise CodeRefused from error
    return Claims(
        entry_id=UUID(content["id"]),
        user_id=UUID(content["user"]),
        kernel_id=UUID(content["kernel"]),
        generation=content["generation"],
        service=content["service"],
        port=content["port"],
        host=content["host"],
        credential=Credential(login=content["login"], token=content["token"], key_pair=content.get("key_pair", "")),
        portal=content.get("portal", ""),
    )


def main_kernel(session: ComputeSession) -> Kernel | None:
    """Return the session's main kernel with its agent loaded; None if there is no kernel."""
    kernel: Kernel | None = session.kernels.select_related("agent").filter(rank=0).first()
    return kernel


def host_of(session: ComputeSession, service: str) -> str:
    """Return the host name of an app. Each service of each session is an origin of its own below the group's domain."""
    return f"{service}-{session.pk.hex[:12]}.{app_domain(session)}"


def app_domain(session: ComputeSession) -> str:
    """Return the domain for this session's apps: the domain of its resource group, or else of the site."""
    return app_domain_of(session.resource_group.app_domain)


def label_of(session: ComputeSession, service: str) -> str:
    """Return the first part of an app's host name."""
    return host_of(session, service).partition(".")[0]


def behind_label(label: str) -> tuple[SessionQuerySet, str] | None:
    """Return the app behind a host name: a query for its session, and the service's name. ``label``: the first part of
    the host name. None if the label is malformed."""
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


def _app(
    session: ComputeSession, service: ServicePort, obstacle: tuple[str, str], is_native: bool, own: AppSetting | None
) -> App:
    host, is_web = host_of(session, service.name), service.protocol in _IN_BROWSERS
    labels = session.image.effective_labels
    kind = kind_of(service.name, service.protocol, labels)
    allowed = allowed_arguments(labels, service.name)
    set_now = {name: value for name, value in own.arguments.items() if name in allowed} if own else {}
    return App(
        service.name,
        (own.title if own else "") or kind.title,
        service.protocol,
        service.port,
        origin_of(host),
        program_url(host, f"/apps/{session.pk}/{service.name}") if is_web else "",
        *(obstacle if is_web else _NO_BROWSER),
        is_native,
        kind.category,
        kind.icon,
        allowed | set_now,
        kind.title,
    )


def _seal(claims: Claims, now: datetime) -> str:
    content: dict[str, Any] = {
        "id": str(claims.entry_id),
        "user": str(claims.user_id),
        "kernel": str(claims.kernel_id),
        "generation": claims.generation,
        "service": claims.service,
        "port": claims.port,
        "host": claims.host,
        "login": claims.credential.login,
        "token": claims.credential.token,
        "key_pair": claims.credential.key_pair,
        "portal": claims.portal,
    }
    return _sealer().encrypt_at_time(json.dumps(content).encode(), current_time=int(now.timestamp())).decode()


def _sealer() -> Fernet:
    key = hashlib.sha256(b"app entry\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
