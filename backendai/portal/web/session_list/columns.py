"""The optional columns of the list of sessions, and its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.language import choose, preference
from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.portal.web.frame.label_fields import label_links
from backendai.portal.web.session_list.address import Address
from backendai.portal.web.templatetags.portal import ago

PREFERENCE = "session-list.columns"
NEWEST_FIRST, _LAST_ENDED_FIRST = ("-created_at", "-pk"), ("-ended_at", "-pk")
_TIMES = frozenset({"created_at", "ended_at"})
_MAIN_AGENT = Subquery(Kernel.objects.filter(session=OuterRef("pk")).order_by("rank").values("agent__name")[:1])


def _everybody(user: User) -> bool:
    return True


def _administrator(user: User) -> bool:
    return user.role != User.Role.USER


def may_see_agents(user: User) -> bool:
    """Return whether this user may see the names of agents.

    Superadmins may, and all users if they may choose agents.
    """
    return user.is_superadmin or site_settings().agent_select


@dataclass(frozen=True, slots=True)
class Column:
    """An optional column of the list.

    Has a name, a heading, a function for its cells, the fields it sorts by (empty: none), and the rule who may see it.
    """

    name: str
    label: str | Promise
    cell: Callable[[ComputeSession], str]
    sort: tuple[str, ...] = ()
    rule: Callable[[User], bool] = _everybody


def _cluster(session: ComputeSession) -> str:
    return f"{session.cluster_mode} × {session.cluster_size}"


def _agents(session: ComputeSession) -> str:
    names = [kernel.agent.name for kernel in session.kernels.all() if kernel.agent]
    return ", ".join(dict.fromkeys(names)) or "–"


COLUMNS: tuple[Column, ...] = (
    Column("environment", _("Image"), lambda session: str(session.image.display_name), ("image__name",)),
    Column("group", _("Resource group"), lambda session: session.resource_group.name, ("resource_group__name",)),
    Column("type", _("Type"), lambda session: session.get_session_type_display(), ("session_type",)),
    Column("cluster", _("Cluster"), _cluster, ("cluster_mode", "cluster_size")),
    Column("created", _("Created"), lambda session: ago(session.created_at), ("created_at",)),
    Column("project", _("Project"), lambda session: session.project.name, ("project__name",)),
    Column("labels", _("Labels"), label_links),
    Column("key", _("Access key"), lambda session: session.access_key or "–"),
    Column("priority", _("Priority"), lambda session: str(session.priority), ("priority",)),
    Column("agent", _("Agent"), _agents, ("main_agent",), may_see_agents),
    Column("owner", _("Owner"), lambda session: session.owner.email, ("owner__email",), _administrator),
)


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a column: the address that sorts by it, and the current order."""

    label: str | Promise
    address: str = ""
    direction: str = ""


def columns_for(user: User) -> list[Column]:
    """Return the columns that this user may see."""
    return [column for column in COLUMNS if column.rule(user)]


def offered_columns(user: User, chosen: Sequence[Column]) -> list[Column]:
    """Return the columns to choose from: the chosen ones in their order, then the others."""
    return [*chosen, *(column for column in columns_for(user) if column not in chosen)]


def chosen_columns(user: User) -> list[Column]:
    """Return the columns that the user chose for the session list, in the user's order.

    Columns the user may no longer see are left out. One query.
    """
    stored = preference(user, PREFERENCE)
    return _known(user, stored if isinstance(stored, list) else [])


def choose_columns(user: User, names: Iterable[str], *, earlier: str = "", later: str = "") -> None:
    """Save the user's columns in their order; leaves out unknown and forbidden ones.

    ``earlier`` and ``later`` name a column that swaps places with the one before or after it.
    """
    chosen = [column.name for column in _known(user, names)]
    for name, step in ((earlier, -1), (later, 1)):
        if name in chosen:
            at = chosen.index(name)
            chosen.insert(max(at + step, 0), chosen.pop(at))
    choose(user, PREFERENCE, chosen or None)


def usual_order(address: Address) -> tuple[str, ...]:
    """Return the default order: the newest launch or the newest end first."""
    return _LAST_ENDED_FIRST if address.finished else NEWEST_FIRST


def order_of(address: Address, user: User) -> tuple[str, ...]:
    """Return the fields by which the address sorts, else the default ones.

    The order is complete, so that no session is missing or repeated across pages.
    """
    text, usual = address.get("sort"), usual_order(address)
    sign, name = ("-" if text.startswith("-") else ""), text.removeprefix("-")
    known: dict[str, tuple[str, ...]] = {"name": ("name",), "age": (usual[0].lstrip("-"),)}  # what everybody always has
    known |= {column.name: column.sort for column in columns_for(user) if column.sort}
    if name not in known:
        return usual
    fields = tuple(f"{sign}{field}" for field in known[name])
    return (*fields, f"{sign}pk") if known[name][0] in _TIMES else (*fields, *usual)


def is_by_time(order: Sequence[str]) -> bool:
    """Return whether an index supports this order."""
    return order[0].lstrip("-") in _TIMES


def in_order(rows: QuerySet[Any], order: Sequence[str]) -> QuerySet[Any]:
    if order[0].lstrip("-") == "main_agent":
        rows = rows.annotate(main_agent=_MAIN_AGENT)
    return rows.order_by(*order)


def headings(address: Address, columns: Sequence[Column]) -> dict[str, Heading]:
    """Return the headings of the columns by name."""
    age = _("Ended") if address.finished else _("Age")
    found = {"name": _heading(address, "name", _("Session"))}
    found["age"] = _heading(address, "age", age, down_first=True)
    for column in columns:
        found[column.name] = _heading(address, column.name, column.label) if column.sort else Heading(column.label)
    return found


def _known(user: User, names: Iterable[str]) -> list[Column]:
    mine = {column.name: column for column in columns_for(user)}
    return [mine[name] for name in dict.fromkeys(names) if name in mine]


def _heading(address: Address, name: str, label: str | Promise, *, down_first: bool = False) -> Heading:
    now = address.get("sort") or "-age"
    direction = {name: "ascending", f"-{name}": "descending"}.get(now, "")
    first, second = (f"-{name}", name) if down_first else (name, f"-{name}")
    return Heading(label, address.to(sort=second if now == first else first), direction)
