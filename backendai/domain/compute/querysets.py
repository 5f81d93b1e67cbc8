"""Querysets: visibility of sessions, and common groups of statuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import models
from django.db.models import Exists, F, Lookup, OuterRef, Q

from backendai.base.core.labels import MOST_LABELS, searched_label
from backendai.domain.accounts.models import Membership, Project
from backendai.domain.cluster.models import SiteSetting
from backendai.domain.compute.status import LIVE, PLACED, TERMINAL, ShareRight, Status

if TYPE_CHECKING:
    from backendai.domain.accounts.models import User

_PENDING = frozenset({Status.PENDING})


class HasLabel(Lookup):
    """Whether a JSON column contains a label; ``rhs``: its key, and its value or None for any."""

    lookup_name = "has_label"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the condition for PostgreSQL."""
        column, parameters = self.process_lhs(compiler, connection)
        key, value = self.rhs
        if value is None:
            return f"jsonb_exists({column}, %s)", [*parameters, key]
        return f"{column} @> %s::jsonb", [*parameters, json.dumps({key: value})]

    def as_sqlite(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the condition for SQLite. Keys of labels have no quotes."""
        column, parameters = self.process_lhs(compiler, connection)
        key, value = self.rhs
        found, path = f"JSON_EXTRACT({column}, %s)", [*parameters, f'$."{key}"']
        return (f"{found} IS NOT NULL", path) if value is None else (f"{found} = %s", [*path, value])


def with_labels(rows: Any, texts: Sequence[str], column: str = "labels") -> Any:
    """Return the rows whose column of labels has each of the labels ``key`` or ``key=value``, of which 16 count."""
    for text in texts[:MOST_LABELS]:
        wanted = searched_label(text)
        rows = rows.filter(HasLabel(F(column), wanted)) if wanted else rows.none()
    return rows


def _visible_to(user: User) -> Q:
    if user.role == "superadmin":
        return Q()
    if user.role == "admin" and user.domain_id:
        return Q(project__domain_id=user.domain_id)
    return Q(owner=user)


class SessionQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> SessionQuerySet:
        """Return the sessions that the user may see: superadmins see all, domain admins the sessions of their domain,
        others only their own, also within a project."""
        return self.filter(_visible_to(user))

    def shared_with(self, user: User, right: ShareRight = ShareRight.VIEW) -> SessionQuerySet:
        """Return live sessions of others that are shared with the user, with at least this right."""
        shares: Any = apps.get_model("compute.SessionShare")
        return self.filter(pk__in=shares.objects.of(user, right).values("session"))

    def open_to(self, user: User, right: ShareRight) -> SessionQuerySet:
        """Return the sessions that the user may see, and those shared with them with at least this right. Only for
        what a share opens; everything else asks ``visible_to``."""
        visible, shares = _visible_to(user), apps.get_model("compute.SessionShare")
        shared: Any = Q(pk__in=shares.objects.of(user, right).values("session"))
        return self.filter(visible | shared if visible else visible)

    def live(self) -> SessionQuerySet:
        """Return sessions that have not ended."""
        return self.filter(status__one_of=LIVE)

    def using(self, image: Any) -> SessionQuerySet:
        """Return sessions of which a kernel has the image, or its role names it. ``image`` may be an OuterRef."""
        return self.filter(Q(image=image) | Q(kernels__image=image)).distinct()

    def finished(self) -> SessionQuerySet:
        """Return sessions that have ended."""
        return self.filter(status__one_of=TERMINAL)

    def pending(self) -> SessionQuerySet:
        """Return sessions that wait to be placed."""
        return self.filter(status__one_of=_PENDING)

    def running(self) -> SessionQuerySet:
        """Return sessions with the status RUNNING."""
        return self.filter(status=Status.RUNNING)


class ShareQuerySet(models.QuerySet[Any]):
    def of(self, user: User, right: ShareRight = ShareRight.VIEW) -> ShareQuerySet:
        """Return what gives the user at least this right now: by name while both are of one domain, or by a project
        while both are its members. Nothing of ended sessions, of deactivated owners, or if the site forbids it."""
        off = Exists(SiteSetting.objects.filter(name="session_shares", value=False))
        own = Project.objects.usable_by(user).values("pk")
        of_owner = Membership.objects.filter(user=OuterRef("session__owner"), project=OuterRef("project"))
        by_name = Q(user=user, session__owner__domain=user.domain_id) & ~Q(session__owner__domain=None)
        found = self.filter(~off, by_name | Q(Exists(of_owner), project__in=own))
        found = found.filter(session__owner__is_active=True, session__status__one_of=LIVE)
        return found.filter(right=right) if right == ShareRight.USE else found


class KernelQuerySet(models.QuerySet[Any]):
    def placed(self) -> KernelQuerySet:
        """Return kernels that are on an agent and have not ended, and so hold slots."""
        return self.filter(status__in=PLACED)

    def live(self) -> KernelQuerySet:
        """Return kernels that have not ended."""
        return self.filter(status__in=LIVE)


class AllocationQuerySet(models.QuerySet[Any]):
    def of_live(self) -> AllocationQuerySet:
        """Return all rows, found through live sessions. Every row belongs to a live session, and these are few."""
        return self.filter(kernel__session__status__one_of=LIVE)


class LaunchRecordQuerySet(models.QuerySet[Any]):
    def visible_to(self, user: User) -> LaunchRecordQuerySet:
        """Return the user's own launches. Administrators, too, get only their own."""
        return self.filter(owner=user)
