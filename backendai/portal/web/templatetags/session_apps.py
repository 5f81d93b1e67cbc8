"""Template tags for the apps of a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.kinds import Category
from backendai.domain.compute.services.apps.of_session import App, app_domain, apps_of, main_kernel, settings_of
from backendai.domain.compute.services.apps.public import public_services
from backendai.gates.gateways.ssh_access import forward_to, site_for
from backendai.portal.web.frame.app_reach import why_out_of_reach

register = template.Library()
_PARTS = {
    Category.UTILITIES: gettext_lazy("Utilities"),
    Category.DEVELOPMENT: gettext_lazy("Development"),
    Category.MACHINE_LEARNING: gettext_lazy("Machine learning"),
    Category.SCIENTIFIC: gettext_lazy("Scientific"),
    Category.DESKTOP: gettext_lazy("Desktop"),
    Category.OTHER: gettext_lazy("Other"),
    Category.PORTS: gettext_lazy("Opened ports"),
}


@dataclass(frozen=True, slots=True)
class SessionEntrance:
    """A page of the platform that leads into the session.

    ``box``: the kind of dialog that it opens in; empty: a tab.
    """

    key: str
    title: str
    icon: str
    address: str
    box: str = ""


@dataclass(frozen=True, slots=True)
class AppGroup:
    """A part of the app launcher."""

    key: str
    title: str
    apps: list[App]
    ways: list[SessionEntrance] = field(default_factory=list)


@register.simple_tag(takes_context=True)
def app_list(context: Any) -> list[App]:
    """Return the apps of the context's ``session``. Its ``kernels``, if present, save a query."""
    session = context["session"]
    if session.is_terminal:
        return []
    kernels = context.get("kernels")
    kernel = next((one for one in kernels if one.rank == 0), None) if kernels is not None else main_kernel(session)
    return apps_of(session, kernel, settings_of(session))


@register.simple_tag(takes_context=True)
def app_groups(context: Any, apps: list[App]) -> list[AppGroup]:
    """Return the non-empty parts of the launcher: the platform's own pages, and the apps by category."""
    session = context["session"]
    found = [AppGroup(one, str(_PARTS[one]), [app for app in apps if app.category == one]) for one in Category]
    own = [] if session.is_terminal else [*_ways_in(session), *_ssh_ways(session, context["request"])]
    found[0] = AppGroup(found[0].key, found[0].title, found[0].apps, own)
    return [group for group in found if group.apps or group.ways]


@register.simple_tag(takes_context=True)
def forward_line(context: Any, app: App) -> str:
    """Return the command that forwards a local port to an app without HTTP.

    Empty if that is impossible, or for sessions of others.
    """
    session, request = context["session"], context["request"]
    site = site_for(request.get_host())
    is_usable = _is_own(session, request) and session.is_running
    return forward_to(site, session.name, app.port) if site and is_usable else ""


def _is_own(session: ComputeSession, request: Any) -> bool:
    return getattr(getattr(request, "user", None), "pk", None) == session.owner_id


def _ssh_ways(session: ComputeSession, request: Any) -> list[SessionEntrance]:
    """Return the entries for SSH and VS Code, only for the owner of a running session.

    Both open the dialog with the commands.
    """
    if not (session.is_running and session.kind.has_shell and _is_own(session, request)):
        return []
    if site_for(request.get_host()) is None:
        return []
    address = reverse("web:session_ssh", args=[session.pk])
    return [
        SessionEntrance("ssh", "SSH", "key", address, "ssh"),
        SessionEntrance("vscode", _("VS Code (by SSH)"), "code", address, "ssh"),
    ]


def _ways_in(session: ComputeSession) -> list[SessionEntrance]:
    page = reverse("web:session", args=[session.pk])
    ways = [SessionEntrance("terminal", _("Terminal"), "terminal-2", f"{page}#terminal")]
    if session.kind.executes_code:
        ways.append(SessionEntrance("console", _("Console"), "player-play", reverse("web:console", args=[session.pk])))
        ways.append(SessionEntrance("files", _("Files"), "folder", reverse("web:home", args=[session.pk])))
    return ways if session.is_running else []


@register.simple_tag(takes_context=True)
def public_apps(context: Any) -> dict[str, datetime | None] | None:
    """Return the public apps by name, each with its end; None where the site does not allow public apps."""
    return public_services(context["session"], timezone.now()) if site_settings().public_apps else None


@register.filter
def end_of(public: dict[str, datetime | None], name: str) -> datetime | None:
    """Return when the public app of this name becomes private; None: at the end of the session."""
    return public.get(name)


@register.simple_tag(takes_context=True)
def app_reach(context: Any) -> str:
    """Return why this browser cannot open apps, with the remedy; empty if it can."""
    return why_out_of_reach(context["request"].get_host(), app_domain(context["session"]))
