"""Pieces of the list of sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from backendai.compute.models import ComputeSession
from backendai.compute.status import SessionType, Status
from backendai.core.service_ports import service_ports_of
from backendai.web.session_list.columns import Column
from backendai.web.templatetags.portal import icon

register = template.Library()
_OPENED = frozenset({"http", "preopen"})


@register.filter
def of(found: Mapping[str, Any], name: str) -> Any:
    """Return what stands under this name."""
    return found[name]


@register.filter
def cell(session: ComputeSession, column: Column) -> str:
    """Return what a session shows in a column."""
    return column.cell(session)


@register.simple_tag
def row_actions(session: ComputeSession) -> SafeString:
    """Return the buttons of one row. They are made here, not in a template: a page has a hundred of them."""
    return format_html_join("", _BUTTON, ((*one, session.name) for one in _actions(session)))


_BUTTON = (
    '<a class="btn btn-ghost btn-icon-only" href="{}" title="{}">{}'
    '<span class="visually-hidden">{} <bdi>{}</bdi></span></a>'
)


def _actions(session: ComputeSession) -> Iterator[tuple[str, str, SafeString, str]]:
    """Yield address, title, icon and title again."""
    page = reverse("web:session", args=[session.pk])
    if session.is_running and _has_apps(session):
        yield _one(f"{page}#apps-title", "apps", _("Apps of"))
    if session.is_running and session.session_type == SessionType.INTERACTIVE:
        yield _one(f"{page}#terminal", "terminal-2", _("Terminal of"))
    if session.started_at or session.status in (Status.RUNNING, Status.TERMINATING):
        yield _one(f"{page}#log", "file-text", _("Log of"))
    if not session.is_terminal:
        title = _("Cancel") if session.status == Status.PENDING else _("Terminate")
        yield _one(reverse("web:terminate", args=[session.pk]), "power", title)


def _one(address: str, name: str, title: str) -> tuple[str, str, SafeString, str]:
    return address, title, icon(name), title


def _has_apps(session: ComputeSession) -> bool:
    """Return whether a browser can open anything of it."""
    services = service_ports_of(session.image.effective_labels)
    return bool(session.preopen_ports) or any(one.protocol in _OPENED for one in services)
