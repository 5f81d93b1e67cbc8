"""The administration pages in the order of their menu. Each entry declares its own addresses, rule and icon."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.models import User
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.agents.join_tokens import JoinTokens
from backendai.portal.web.admin.agents.pages import Agents
from backendai.portal.web.admin.agents.queue import Queue
from backendai.portal.web.admin.agents.unknown_kernels import UnknownKernels
from backendai.portal.web.admin.agents.what_if import WhatIf
from backendai.portal.web.admin.catalog.images import Images
from backendai.portal.web.admin.catalog.presets import Presets
from backendai.portal.web.admin.catalog.registries import Registries
from backendai.portal.web.admin.people.domains import Domains
from backendai.portal.web.admin.people.import_people import ImportPage
from backendai.portal.web.admin.people.invitations import Invitations
from backendai.portal.web.admin.people.policies import Policies
from backendai.portal.web.admin.people.projects import Projects
from backendai.portal.web.admin.people.users import Users
from backendai.portal.web.admin.site.announcements import Announcements
from backendai.portal.web.admin.site.audit import Audit
from backendai.portal.web.admin.site.folders import Folders
from backendai.portal.web.admin.site.groups import Groups
from backendai.portal.web.admin.site.idle_checkers import IdleCheckers
from backendai.portal.web.admin.site.information import InformationPage, MaintenancePage, StatisticsPage
from backendai.portal.web.admin.site.jobs import Jobs
from backendai.portal.web.admin.site.settings import SettingsPage
from backendai.portal.web.admin.site.slot_types import SlotTypes
from backendai.portal.web.admin.site.storage_hosts import StorageHosts

MENU: tuple[tuple[str | Promise, tuple[type[PanelPage], ...]], ...] = (
    (_l("People"), (Users, Projects, Domains, Invitations, Policies, ImportPage)),
    (
        _l("Resources"),
        (
            Queue, WhatIf, Agents, UnknownKernels, Groups, IdleCheckers, Presets, Images, Registries, Folders,
            StorageHosts, JoinTokens, SlotTypes,
        ),
    ),
    (
        _l("Platform"),
        (
            Jobs, StatisticsPage, SettingsPage, Announcements, MaintenancePage, InformationPage, Audit,
        ),
    ),
)  # fmt: skip


def menu_for(user: User) -> Sequence[tuple[str | Promise, list[type[PanelPage]]]]:
    """Return the groups of the menu with the pages that this user may open."""
    groups = [(title, [page for page in pages if page.rule(user)]) for title, pages in MENU]
    return [(title, pages) for title, pages in groups if pages]


def has_menu(user: User) -> bool:
    """Return whether this user may open any administration page."""
    return bool(menu_for(user))
