"""Selects and orders the folders of the list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.core.paginator import Paginator
from django.db.models import Count, F, Prefetch, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _l

from backendai.domain.accounts.models import Membership, User
from backendai.domain.compute.models import SessionMount
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.querysets import MANAGE, FolderQuerySet
from backendai.domain.storage.status import FolderStatus, Usage

PAGE_SIZE = 50
KINDS: dict[str, str | Promise] = {
    "": _l("All"),
    "own": _l("Mine"),
    "shared": _l("Shared with me"),
    "project": _l("Of projects"),
}
ONLY: dict[str, tuple[str | Promise, Q]] = {
    "": (_l("Any use"), Q()),
    "general": (_l("General data"), Q(usage=Usage.GENERAL)),
    "model": (_l("Models"), Q(usage=Usage.MODEL)),
    "home": (_l("Stopped sessions"), Q(usage=Usage.HOME)),
    "automatic": (_l("Mounted automatically"), Q(name__startswith=".")),
}
_SORTS = {"name": "name", "size": "used_bytes", "limit": "limit_bytes", "created": "created_at", "owner": "owner_name"}
_SHOWN = [FolderStatus.CREATING, FolderStatus.READY, FolderStatus.DELETING, FolderStatus.ERROR]


class Tab(NamedTuple):
    """A tab of the list: a kind of folders with its number, its address, and whether it is shown."""

    kind: str
    title: str | Promise
    number: int
    address: str
    is_current: bool


class ListQuery(NamedTuple):
    """The filters and order that the list's address requests."""

    kind: str
    words: str
    sort: str
    only: str = ""

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> ListQuery:
        """Return the requested filters and order. Invalid values become the default."""
        kind, sort = str(query.get("kind", "")), str(query.get("sort", "name"))
        return cls(
            kind if kind in KINDS else "",
            str(query.get("q", ""))[:100].replace("\0", ""),
            sort if sort.removeprefix("-") in _SORTS else "name",
            str(query.get("only", "")) if query.get("only", "") in ONLY else "",
        )

    def to(self, **over: str) -> str:
        """Return the address of the list with some parameters changed."""
        params = {"kind": self.kind, "q": self.words, "sort": "" if self.sort == "name" else self.sort}
        params |= {"only": self.only} | over
        return "?" + urlencode({name: value for name, value in params.items() if value})

    def heading(self, name: str) -> tuple[str, str]:
        """Return the address that sorts by a column, and the column's current order as in ``aria-sort``."""
        if self.sort == name:
            return self.to(sort=f"-{name}"), "ascending"
        return self.to(sort=name), "descending" if self.sort == f"-{name}" else ""


def folders_of(user: User) -> FolderQuerySet:
    """Return the folders of a person, with ``rights``: own folders, shared ones and those of projects.

    Without the trash.
    """
    visible: FolderQuerySet = Folder.objects.visible_to(user)
    mine = Q(user=user) | Q(project__in=_projects(user)) | Q(pk__in=_granted(user))
    return visible.filter(mine, status__in=_SHOWN)


def trash_of(user: User) -> QuerySet[Any]:
    """Return the folders in the trash that this person may restore."""
    visible = Folder.objects.visible_to(user).filter(Q(user=user) | Q(project__in=_projects(user)))
    rows = visible.filter(status=FolderStatus.TRASHED, rights=MANAGE).select_related("host", "user", "project")
    return rows.order_by("-trashed_at", "pk")


def page_of(user: User, asked: ListQuery, number: str) -> Any:
    """Return one page of the requested folders, with their owners, hosts and the sessions that mount them."""
    rows: QuerySet[Any] = _kinds(folders_of(user), user)[asked.kind].filter(ONLY[asked.only][1])
    for word in asked.words.split():
        rows = rows.filter(Q(name__icontains=word) | Q(user__email__icontains=word) | Q(project__name__icontains=word))
    field = F(_SORTS[asked.sort.removeprefix("-")])
    order = field.desc(nulls_last=True) if asked.sort.startswith("-") else field.asc(nulls_last=True)
    mounts = SessionMount.objects.filter(released_at=None).select_related("session").order_by("created_at")
    rows = rows.select_related("host", "user", "project").annotate(owner_name=Coalesce("user__email", "project__name"))
    rows = rows.prefetch_related(Prefetch("mounts", mounts, to_attr="live_mounts"))
    return Paginator(rows.order_by(order, "name", "pk"), PAGE_SIZE).get_page(number)


def tabs_of(user: User, asked: ListQuery) -> list[Tab]:
    """Return the tabs with the numbers of folders, in one query."""
    mine = Count("pk", filter=Q(user=user))
    project = Count("pk", filter=Q(project__in=_projects(user)))
    numbers = folders_of(user).order_by().aggregate(all=Count("pk"), own=mine, project=project)
    numbers |= {"": numbers["all"], "shared": numbers["all"] - numbers["own"] - numbers["project"]}
    return [Tab(kind, title, numbers[kind], asked.to(kind=kind), kind == asked.kind) for kind, title in KINDS.items()]


def _kinds(rows: FolderQuerySet, user: User) -> dict[str, FolderQuerySet]:
    project = Q(project__in=_projects(user))
    return {
        "": rows,
        "own": rows.filter(user=user),
        "project": rows.filter(project),
        "shared": rows.exclude(user=user).exclude(project),
    }


def _projects(user: User) -> QuerySet[Any]:
    return Membership.objects.filter(user=user).order_by().values("project")


def _granted(user: User) -> QuerySet[Any]:
    return FolderGrant.objects.filter(user=user).counting().order_by().values("folder")
