"""The menu of the administration pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.models import User
from backendai.domain.accounts.roles import chooses_members, rules_people


def _superadmin(user: User) -> bool:
    return user.is_superadmin


def _administrator(user: User) -> bool:
    return user.role != User.Role.USER


@dataclass(frozen=True, slots=True)
class Entry:
    """One page of the menu. ``section`` is also the last part of its route's name, ``manage:<section>``."""

    section: str
    title: str | Promise
    icon: str
    rule: Callable[[User], bool] = _superadmin

    @property
    def address(self) -> str:
        """The name of the page's route."""
        return f"manage:{self.section}"


MENU: tuple[tuple[str | Promise, tuple[Entry, ...]], ...] = (
    (
        _l("People"),
        (
            Entry("users", _l("Users"), "users", rules_people),
            Entry("projects", _l("Projects"), "folder", chooses_members),
            Entry("domains", _l("Domains"), "building"),
            Entry("invitations", _l("Invitations"), "mail", chooses_members),
            Entry("policies", _l("Resource policies"), "adjustments"),
            Entry("import", _l("Import people"), "file-import", chooses_members),
        ),
    ),
    (
        _l("Resources"),
        (
            Entry("queue", _l("Pending sessions"), "clock", _administrator),
            Entry("agents", _l("Agents"), "server"),
            Entry("unknown-kernels", _l("Unknown kernels"), "alert-triangle"),
            Entry("groups", _l("Resource groups"), "stack-2"),
            Entry("idle-checkers", _l("Idle checkers"), "clock"),
            Entry("presets", _l("Presets"), "adjustments"),
            Entry("images", _l("Images"), "package"),
            Entry("registries", _l("Registries"), "download"),
            Entry("folders", _l("Folders"), "folder", _administrator),
            Entry("storage-hosts", _l("Storage hosts"), "database"),
            Entry("join-tokens", _l("Join tokens"), "key"),
            Entry("slot-types", _l("Slot types"), "cpu"),
        ),
    ),
    (
        _l("Platform"),
        (
            Entry("jobs", _l("Background jobs"), "refresh"),
            Entry("statistics", _l("Statistics"), "chart-bar", _administrator),
            Entry("settings", _l("Settings"), "adjustments-horizontal"),
            Entry("announcements", _l("Announcements"), "speakerphone"),
            Entry("maintenance", _l("Maintenance"), "tool"),
            Entry("information", _l("Information"), "info-circle"),
            Entry("audit", _l("Audit log"), "list-details"),
        ),
    ),
)


def menu_for(user: User) -> Sequence[tuple[str | Promise, list[Entry]]]:
    """Return the groups of the menu with the pages that this user may open."""
    groups = [(title, [entry for entry in entries if entry.rule(user)]) for title, entries in MENU]
    return [(title, entries) for title, entries in groups if entries]


def has_menu(user: User) -> bool:
    """Return whether this user may open any administration page."""
    return bool(menu_for(user))
