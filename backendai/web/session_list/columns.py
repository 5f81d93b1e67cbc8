"""The columns that people may add to their list of sessions, and what it can be sorted by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from backendai.accounts.models import User
from backendai.accounts.services.preferences import choose, preference
from backendai.cluster.site import site_settings
from backendai.compute.models import ComputeSession, Kernel
from backendai.web.session_list.address import Address
from backendai.web.templatetags.portal import ago

PREFERENCE = "session-list.columns"
NEWEST_FIRST, _LAST_ENDED_FIRST = ("-created_at", "-pk"), ("-ended_at", "-pk")
_TIMES = frozenset({"created_at", "ended_at"})
_MAIN_AGENT = Subquery(Kernel.objects.filter(session=OuterRef("pk")).order_by("rank").values("agent__name")[:1])


def _everybody(user: User) -> bool:
    return True


def _administrator(user: User) -> bool:
    return user.role != User.Role.USER


def may_see_agents(user: User) -> bool:
    """Return whether the names of agents are this person's business: where people choose agents, it is everybody's."""
    return user.is_superadmin or site_settings().agent_select


@dataclass(frozen=True, slots=True)
class Column:
    """A column that can be added: its name, its heading, what one session shows in it, what it is sorted by (empty: the
    list cannot be), and whose business it is."""

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
    Column("key", _("Access key"), lambda session: session.access_key or "–"),
    Column("priority", _("Priority"), lambda session: str(session.priority), ("priority",)),
    Column("agent", _("Agent"), _agents, ("main_agent",), may_see_agents),
    Column("owner", _("Owner"), lambda session: session.owner.email, ("owner__email",), _administrator),
)


@dataclass(frozen=True, slots=True)
class Heading:
    """The top of a column: where it sorts, and how the list is sorted by it now."""

    label: str | Promise
    address: str = ""
    direction: str = ""


def columns_for(user: User) -> list[Column]:
    """Return what this person may choose from."""
    return [column for column in COLUMNS if column.rule(user)]


def offered_columns(user: User, chosen: Sequence[Column]) -> list[Column]:
    """Return what this person may choose from: what is chosen in its order, then the rest."""
    return [*chosen, *(column for column in columns_for(user) if column not in chosen)]


def chosen_columns(user: User) -> list[Column]:
    """Return what this person has chosen, in their order; one query. A choice that is not theirs any more is passed
    over."""
    stored = preference(user, PREFERENCE)
    return _known(user, stored if isinstance(stored, list) else [])


def choose_columns(user: User, names: Iterable[str], *, earlier: str = "", later: str = "") -> None:
    """Keep the choice and its order; what does not exist, or is not for this person, is left out. ``earlier`` and
    ``later`` name a column that changes places with the one before or after it."""
    chosen = [column.name for column in _known(user, names)]
    for name, step in ((earlier, -1), (later, 1)):
        if name in chosen:
            at = chosen.index(name)
            chosen.insert(max(at + step, 0), chosen.pop(at))
    choose(user, PREFERENCE, chosen or None)


def usual_order(address: Address) -> tuple[str, ...]:
    """Return the order of a list that nobody has sorted: what was launched last first, or what ended last."""
    return _LAST_ENDED_FIRST if address.finished else NEWEST_FIRST


def order_of(address: Address, user: User) -> tuple[str, ...]:
    """Return the columns of the table by which the address asks to sort, else the usual ones. The order is always
    complete: no session is on two pages or on none."""
    text, usual = address.get("sort"), usual_order(address)
    sign, name = ("-" if text.startswith("-") else ""), text.removeprefix("-")
    known: dict[str, tuple[str, ...]] = {"name": ("name",), "age": (usual[0].lstrip("-"),)}  # what everybody always has
    known |= {column.name: column.sort for column in columns_for(user) if column.sort}
    if name not in known:
        return usual
    fields = tuple(f"{sign}{field}" for field in known[name])
    return (*fields, f"{sign}pk") if known[name][0] in _TIMES else (*fields, *usual)


def is_by_time(order: Sequence[str]) -> bool:
    """Return whether an index has this order."""
    return order[0].lstrip("-") in _TIMES


def in_order(rows: QuerySet[Any], order: Sequence[str]) -> QuerySet[Any]:
    """Return the rows in this order."""
    if order[0].lstrip("-") == "main_agent":
        rows = rows.annotate(main_agent=_MAIN_AGENT)
    return rows.order_by(*order)


def headings(address: Address, columns: Sequence[Column]) -> dict[str, Heading]:
    """Return the tops of the columns by name."""
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
