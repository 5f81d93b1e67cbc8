"""Template tags of the folder pages."""

from __future__ import annotations

import unicodedata

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from backendai.base.core.names import is_hidden
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import FolderStatus, QuotaMode
from backendai.portal.web.folders.access import used_percent
from backendai.portal.web.folders.forms import rights_words
from backendai.portal.web.folders.writers import Change
from backendai.portal.web.templatetags.portal import size, soon

register = template.Library()
register.filter("rights_words", rights_words)

_FULL = 80  # percent from which the bar warns
_TONES = {
    FolderStatus.READY: "good",
    FolderStatus.CREATING: "busy",
    FolderStatus.DELETING: "busy",
    FolderStatus.ERROR: "bad",
}
_MOVING = (FolderStatus.CREATING, FolderStatus.DELETING)


@register.filter
def visible(name: str) -> str:
    """Return the name of an entry with a mark in place of every invisible or direction-changing character.

    A file called ``‹U+202E›gnp.exe`` would look like an image.
    """
    shown = (
        "\N{REPLACEMENT CHARACTER}" if is_hidden(one) or unicodedata.category(one) == "Cc" else one for one in name
    )
    return "".join(shown)


@register.simple_tag
def folder_status(folder: Folder) -> SafeString:
    """Return a folder's status as a coloured word."""
    status = FolderStatus(folder.status)
    moving = " status-moving" if status in _MOVING else ""
    tone = _TONES.get(status, "over")
    return format_html('<span class="status tone-{}{}">{}</span>', tone, moving, in_words(str(status.label)))


@register.simple_tag
def folder_size(folder: Folder) -> SafeString:
    """Return the size of a folder, its limit, and whether that is enforced."""
    if folder.linked_path:
        return format_html("{}", "–")
    if folder.used_bytes is None and folder.limit_bytes is not None:
        text = _("limit %(limit)s") % {"limit": size(folder.limit_bytes)}
        return format_html('<span class="number">{}</span> <span class="sub">{}</span>', text, _("not measured yet"))
    used = size(folder.used_bytes) if folder.used_bytes is not None else _("not measured yet")
    if folder.limit_bytes is None:
        return format_html('<span class="number">{}</span>', used)
    is_enforced = folder.host.quota_mode == QuotaMode.ENFORCED
    text = _("%(used)s of %(limit)s") % {"used": used, "limit": size(folder.limit_bytes)}
    how = _("enforced") if is_enforced else _("measured")
    percent = used_percent(folder)
    meter: SafeString | str = ""
    if percent is not None:
        full = "is-full" if percent >= _FULL else ""
        meter = format_html(
            '<meter min="0" max="100" value="{}" class="{}" aria-label="{}">{} %</meter>', percent, full, text, percent
        )
    return format_html('<span class="number">{}</span> <span class="sub">({})</span>{}', text, how, meter)


@register.simple_tag
def host_away(host: StorageHost) -> SafeString | str:
    """Return since when the folders of a storage host are unreachable, and why; empty if they are reachable."""
    if not host.fault:
        return ""
    told = _("unreachable")
    if host.fault_since is not None:
        told = format_html(_("unreachable since {time}"), time=soon(host.fault_since))
    return format_html('<div class="sub state-bad">{}</div><div class="sub">{}</div>', told, in_words(host.fault))


@register.simple_tag
def change_words(change: Change) -> SafeString:
    """Return during which session a file changed, as a link to the session."""
    link = format_html('<a href="{}"><bdi>{}</bdi></a>', reverse("web:session", args=[change.session_id]), change.name)
    if change.others:
        text = ngettext(
            "probably while {session} ran, or another session",
            "probably while {session} ran, or {number} other sessions",
            change.others,
        )
        return format_html(text, session=link, number=change.others)
    return format_html(_("while {session} ran"), session=link)
