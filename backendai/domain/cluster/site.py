"""Settings of the whole site that administrators change at run time, each with its kind and default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots, amount_in_words, format_amount
from backendai.base.db.per_request import forget, once
from backendai.domain.accounts.models import User
from backendai.domain.activity.changes import plain_value
from backendai.domain.activity.services import audit
from backendai.domain.cluster.groups.session_network import (
    clean_authorities,
    clean_hosts,
    clean_url,
    clean_urls,
    for_the_log,
)
from backendai.domain.cluster.models import Announcement, SiteSetting
from backendai.domain.cluster.slot_types import check_known


def _stored() -> QuerySet[Any, Any]:
    return SiteSetting.objects.values_list("name", "value")


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The settings of the site.

    ``container_caps``: the largest amount of each slot for one kernel. Others are for programs in sessions:
    certificates in PEM besides the system's, package indexes, proxies.
    """

    custom_allocation: bool = True
    agent_select: bool = False
    manual_image: bool = False
    group_resources_visible: bool = True
    public_apps: bool = False
    session_shares: bool = True
    container_caps: Slots = field(default_factory=Slots)
    session_authorities: str = ""
    package_index: str = ""
    package_extra_indexes: list[str] = field(default_factory=list)
    package_trusted_hosts: list[str] = field(default_factory=list)
    session_http_proxy: str = ""
    session_https_proxy: str = ""
    session_no_proxy: list[str] = field(default_factory=list)


def _yes_or_no(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UserError(
            "{name} is {value}; use true or false.", name=name, value=repr(value), field=name, code="invalid-setting"
        )
    return value


def _amounts(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise UserError(
            '{name}: write amounts by slot, such as {"cpu": 32}.', name=name, field=name, code="invalid-setting"
        )
    try:
        check_known(value, field=name, kept=site_settings().container_caps)
        return Slots.parse(value, field=name, typed=True).to_json()
    except UserError as error:
        raise UserError(error.message, field=name, code=error.code) from None


# name → how a typed value becomes the stored one
SCHEMA: dict[str, Callable[[str, Any], Any]] = {
    "custom_allocation": _yes_or_no,
    "agent_select": _yes_or_no,
    "manual_image": _yes_or_no,
    "group_resources_visible": _yes_or_no,
    "public_apps": _yes_or_no,
    "session_shares": _yes_or_no,
    "container_caps": _amounts,
    "session_authorities": clean_authorities,
    "package_index": clean_url,
    "package_extra_indexes": clean_urls,
    "package_trusted_hosts": clean_hosts,
    "session_http_proxy": clean_url,
    "session_https_proxy": clean_url,
    "session_no_proxy": clean_hosts,
}


def site_settings() -> SiteSettings:
    """Return the current settings of the site; unchanged ones have their default."""
    return once("site-settings", _read)


def stored_settings() -> dict[str, Any]:
    """Return all settings by name, as JSON."""
    now = site_settings()
    return {name: value.to_json() if isinstance(value := getattr(now, name), Slots) else value for name in SCHEMA}


def change_site(actor: User, values: Mapping[str, Any], *, now: datetime) -> None:
    """Save these settings. Raises UserError that names the first invalid one, and then saves nothing."""
    before = stored_settings()
    cleaned = {name: _clean(name, value) for name, value in values.items()}
    changes = {name: [before[name], value] for name, value in cleaned.items() if before[name] != value}
    if not changes:
        return
    with transaction.atomic():
        for name, (_, value) in changes.items():
            SiteSetting.objects.update_or_create(
                name=name, defaults={"value": value, "changed_at": now, "changed_by": actor}
            )
        told = {name: [for_the_log(name, value) for value in pair] for name, pair in changes.items()}
        audit(actor.pk, "site-settings.change", "site-settings", ["site"], changes=told)
    forget()


def check_caps(slots: Slots) -> None:
    """Raise UserError for amounts above the site's limit for one kernel."""
    for slot, most in site_settings().container_caps.items():
        if slots[slot] > most:
            told = amount_in_words(slot, slots[slot])
            wanted, limit = format_amount(slot, slots[slot]), format_amount(slot, most)
            raise UserError(
                "{told} requested, but one kernel may have at most {limit} here.",
                told=told,
                field=f"resources.{slot}",
                code="above-container-cap",
                wanted=wanted,
                limit=limit,
            )


def announcements(now: datetime) -> list[Announcement]:
    """Return the announcements to show on every page now, the newest first (at most 3)."""
    return list(current_announcements(now)[:3])


def current_announcements(now: datetime) -> QuerySet[Announcement]:
    """Return the announcements that have started and not ended, the newest first."""
    return Announcement.objects.filter(Q(ends_at=None) | Q(ends_at__gt=now), starts_at__lte=now)


def write_announcement(actor_id: UUID, row: Announcement, values: Mapping[str, Any]) -> Announcement:
    """Save a new or changed announcement with these values, and return it. Raises UserError if it ends too early."""
    action = "announcement.create" if row.pk is None else "announcement.change"
    changes = {name: [plain_value(getattr(row, name)), plain_value(value)] for name, value in values.items()}
    for name, value in values.items():
        setattr(row, name, value)
    if row.ends_at is not None and row.ends_at <= row.starts_at:
        raise UserError("It ends before it begins.", field="ends_at", code="ends-too-early")
    with transaction.atomic():
        row.save()
        audit(actor_id, action, "announcement", [row.pk], name=str(row), changes=changes)
    return row


def _clean(name: str, value: Any) -> Any:
    if name not in SCHEMA:
        known = ", ".join(SCHEMA)
        raise UserError(
            "Unknown setting {name}: choose one of {known}.",
            name=repr(name),
            known=known,
            field=name,
            code="unknown-setting",
        )
    return SCHEMA[name](name, value)


def _read() -> SiteSettings:
    values = {name: value for name, value in _stored() if name in SCHEMA}
    if "container_caps" in values:
        values["container_caps"] = Slots.parse(values["container_caps"])
    return SiteSettings(**values)
