"""Template tags of the list of sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from backendai.base.core.service_ports import service_ports_of
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Result, Status
from backendai.portal.web.frame.label_fields import label_links
from backendai.portal.web.frame.statuses import appearance_of
from backendai.portal.web.session_list.columns import Column
from backendai.portal.web.templatetags.portal import fullness, icon, status

register = template.Library()
_OPENED = frozenset({"http", "preopen"})


@register.filter
def of(found: Mapping[str, Any], name: str) -> Any:
    """Return the value of this key."""
    return found[name]


@register.filter
def cell(session: ComputeSession, column: Column) -> str:
    """Return the content of a session's cell in a column."""
    return column.cell(session)


register.simple_tag(label_links)


@register.simple_tag
def row_actions(session: ComputeSession) -> SafeString:
    """Return the buttons of one row. Built without a template, as a page has a hundred of them."""
    return format_html_join("", _BUTTON, ((*one, session.name) for one in _actions(session)))


@register.simple_tag
def usage_bars(session: ComputeSession) -> SafeString:
    """Return bars of a running session's usage; a dash if it is not measured."""
    bars = getattr(session, "usage", None)
    if bars is None:
        return SafeString("")
    if not bars:
        return format_html('<span class="text-secondary" title="{}">–</span>', _("Usage: not measured yet"))
    return format_html_join("", _BAR, (_parts_of(bar) for bar in bars))


_BAR = (
    '<span class="row-use" title="{}"><span class="row-use-name" aria-hidden="true">{}</span>'
    '<meter min="0" max="100" value="{}" class="{}" aria-label="{}"></meter>'
    '<span class="number" aria-hidden="true">{} %</span></span>'
)


def _parts_of(bar: Any) -> tuple[object, ...]:
    return bar.title, bar.short, bar.percent, fullness(bar.percent), bar.title, bar.percent


_BUTTON = (
    '<a class="btn btn-ghost btn-icon-only" id="{}" href="{}" title="{}"{}>{}'
    '<span class="visually-hidden">{} <bdi>{}</bdi></span></a>'
)
_Button = tuple[str, str, str, SafeString, SafeString, str]


def _actions(session: ComputeSession) -> Iterator[_Button]:
    """Yield the buttons of a session: id, address, title, dialog attribute, icon, and the text before the name."""
    page = reverse("web:session", args=[session.pk])
    if session.is_running and _has_apps(session):
        yield _one(session, reverse("web:app_launcher", args=[session.pk]), "apps", _("Apps"), _("Apps of"), "apps")
    if session.is_running and session.kind.is_worked_in:
        yield _one(session, f"{page}#terminal", "terminal-2", _("Terminal"), _("Terminal of"))
    if session.started_at or session.status in (Status.RUNNING, Status.TERMINATING):
        yield _one(session, f"{page}#log", "file-text", _("Log"), _("Log of"))
    if session.status == Status.STOPPED:
        address = reverse("web:session_resume", args=[session.pk])
        yield _one(session, address, "player-play", _("Resume"), _("Resume"), "resume")
    if not session.is_terminal:
        title = _("Cancel") if session.status == Status.PENDING else _("Terminate")
        yield _one(session, reverse("web:terminate", args=[session.pk]), "power", title, title, "terminate")
    else:
        again = f"{reverse('web:launch')}?like={session.pk}"
        yield _one(session, again, "refresh", _("Launch again"), _("Launch again"))


def _one(session: ComputeSession, address: str, name: str, title: str, said: str, box: str = "") -> _Button:
    opens = format_html(' data-box="{}"', box) if box else SafeString("")
    return f"row-{name}-{session.pk}", address, title, opens, icon(name), said


@register.simple_tag
def session_status(session: ComputeSession) -> SafeString:
    """Return the status of a session as a badge; for an ended batch session its result."""
    return status(_shown(session))


@register.filter
def session_word(session: ComputeSession) -> str:
    """Return the word of the badge that ``session_status`` shows."""
    return appearance_of(_shown(session)).word


def _shown(session: ComputeSession) -> str:
    is_told = session.status == Status.TERMINATED and session.kind.has_result
    return session.result if is_told and session.result != Result.UNDEFINED else session.status


def _has_apps(session: ComputeSession) -> bool:
    """Return whether a browser can open an app of the session."""
    services = service_ports_of(session.image.effective_labels)
    return bool(session.preopen_ports) or any(one.protocol in _OPENED for one in services)
