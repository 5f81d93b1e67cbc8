"""The menu beside the administration pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backendai.accounts.models import User
from backendai.accounts.roles import chooses_members, rules_people


def _superadmin(user: User) -> bool:
    return user.is_superadmin


def _administrator(user: User) -> bool:
    return user.role != User.Role.USER


@dataclass(frozen=True, slots=True)
class Entry:
    """One page: ``section`` is also the end of its address's name, ``manage:<section>``."""

    section: str
    title: str
    icon: str
    rule: Callable[[User], bool] = _superadmin

    @property
    def address(self) -> str:
        """The name of its address."""
        return f"manage:{self.section}"


MENU: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "People",
        (
            Entry("users", "Users", "users", rules_people),
            Entry("projects", "Projects", "folder", chooses_members),
            Entry("domains", "Domains", "building"),
            Entry("invitations", "Invitations", "mail", chooses_members),
            Entry("policies", "Resource policies", "adjustments"),
            Entry("import", "Import people", "file-import", chooses_members),
        ),
    ),
    (
        "Resources",
        (
            Entry("agents", "Agents", "server"),
            Entry("groups", "Resource groups", "stack-2"),
            Entry("presets", "Presets", "adjustments"),
            Entry("images", "Images", "package"),
            Entry("registries", "Registries", "download"),
            Entry("join-tokens", "Join tokens", "key"),
            Entry("slot-types", "Slot types", "cpu"),
        ),
    ),
    (
        "Platform",
        (
            Entry("jobs", "Background jobs", "refresh"),
            Entry("statistics", "Statistics", "chart-bar", _administrator),
            Entry("settings", "Settings", "adjustments-horizontal"),
            Entry("announcements", "Announcements", "speakerphone"),
            Entry("maintenance", "Maintenance", "tool"),
            Entry("information", "Information", "info-circle"),
            Entry("audit", "Audit log", "list-details"),
        ),
    ),
)


def menu_for(user: User) -> Sequence[tuple[str, list[Entry]]]:
    """Return the groups of the menu with the pages that this person may open."""
    groups = [(title, [entry for entry in entries if entry.rule(user)]) for title, entries in MENU]
    return [(title, entries) for title, entries in groups if entries]


def has_menu(user: User) -> bool:
    """Return whether there is any page for this person."""
    return bool(menu_for(user))
