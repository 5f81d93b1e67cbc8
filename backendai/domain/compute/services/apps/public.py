"""Makes apps public: anyone with the address may use a public app for a limited time, without an account."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit, audit_each
from backendai.domain.cluster.models import SiteSetting
from backendai.domain.cluster.site import site_settings
from backendai.domain.compute.models import ComputeSession, Kernel, PublicApp, PublicFor
from backendai.domain.compute.querysets import SessionQuerySet
from backendai.domain.compute.services.apps.of_session import App, apps_of, host_of, label_of, main_kernel
from backendai.domain.compute.services.apps.settings import find_app
from backendai.domain.compute.services.notices.owners import notify_of_closed_apps

OPENED, CLOSED = "app.open-to-everybody", "app.close-to-others"
_LENGTHS = {PublicFor.HOUR: timedelta(hours=1), PublicFor.DAY: timedelta(days=1)}
_MOST_AT_ONCE = 500


class PublicTarget(NamedTuple):
    """A public app, and its kernel with the agent loaded. ``closes_at``: when the app becomes private (None: when its
    session ends)."""

    kernel: Kernel
    app: App
    closes_at: datetime | None


def open_to_everybody(
    user: User, session: ComputeSession, name: str, *, now: datetime, public_for: PublicFor = PublicFor.DAY
) -> App:
    """Make an app public and return it. A repeated call changes the end. The caller checks that the user may see the
    session. Raises NotFound if there is no such app; Conflict if the site allows no public apps or the app cannot be
    opened now."""
    if not site_settings().public_apps:
        text = Message("Apps cannot be made public on this site. Ask an administrator to allow it.")
        raise Conflict(text, code="no-public-apps")
    app = find_app(session, name)
    if app.code:
        raise Conflict(app.reason, code=app.code)
    closes_at = now + _LENGTHS[public_for] if public_for in _LENGTHS else None
    values = {"label": label_of(session, name), "opened_by": user, "opened_at": now, "closes_at": closes_at}
    with transaction.atomic():
        PublicApp.objects.update_or_create(session=session, service=name, defaults=values)
        until = closes_at.isoformat() if closes_at else Message("end of session")
        audit(user.pk, OPENED, "session", [session.pk], service=name, until=until, **both_names(user, session.owner))
        _show_again(ComputeSession.objects.filter(pk=session.pk))
    return app


def close_to_others(user: User, session: ComputeSession, name: str) -> None:
    """Make an app private. The app proxy closes other people's connections within seconds. Nothing changes if the app
    is private."""
    with transaction.atomic():
        gone, _ = PublicApp.objects.filter(session=session, service=name).delete()
        if gone:
            audit(user.pk, CLOSED, "session", [session.pk], service=name, **both_names(user, session.owner))
            _show_again(ComputeSession.objects.filter(pk=session.pk))


def close_expired_apps(now: datetime) -> int:
    """Delete expired public apps and notify the sessions' owners; returns how many. At most ``_MOST_AT_ONCE`` per call.
    The app proxy itself checks the time at each request."""
    over = PublicApp.objects.filter(closes_at__lte=now)
    if not over.exists():
        return 0
    with transaction.atomic():
        rows = over.select_for_update(of=("self",)).select_related("session").order_by("closes_at", "pk")
        due = list(rows[:_MOST_AT_ONCE])
        PublicApp.objects.filter(pk__in=[row.pk for row in due]).delete()
        services: defaultdict[ComputeSession, list[str]] = defaultdict(list)
        for row in due:
            services[row.session].append(row.service)
        about = {
            one.pk: {"services": sorted(names), "reason": Message("time is up")} for one, names in services.items()
        }
        audit_each(None, CLOSED, "session", about)
        live = {one: sorted(names) for one, names in services.items() if not one.is_terminal}
        ends = {row.session_id: row.closes_at or now for row in due}
        sentences = {
            one.pk: (
                one.owner_id,
                Message("Public access to {names} has ended: its time is up.", names=names),
                ends[one.pk],
            )
            for one, names in live.items()
        }
        notify_of_closed_apps(sentences, now=now)
        _show_again(ComputeSession.objects.filter(pk__in=[one.pk for one in live]))
    return len(due)


def public_services(session: ComputeSession, now: datetime) -> dict[str, datetime | None]:
    """Return when the session's public apps become private, by service (None: when the session ends). Empty if the site
    forbids public apps."""
    if not site_settings().public_apps:
        return {}
    return dict(_open_at(now).filter(session=session).values_list("service", "closes_at"))


def is_public() -> Exists:
    """Return a query expression: whether the session has a public app now."""
    allowed = Exists(SiteSetting.objects.filter(name="public_apps", value=True))
    return Exists(_open_at(Now()).filter(allowed, session=OuterRef("pk")))


def public_app_at(host: str, now: datetime) -> PublicTarget | None:
    """Return the public app with this host name; None if there is none, or if the person who made it public may no
    longer see the session."""
    rows = _open_at(now).select_related("session__image", "session__resource_group", "opened_by")
    found = rows.filter(label=host.partition(".")[0]).first()
    if found is None or not site_settings().public_apps or host_of(found.session, found.service) != host:
        return None
    if not ComputeSession.objects.visible_to(found.opened_by).filter(pk=found.session_id).exists():
        return None
    kernel = main_kernel(found.session)
    app = next((one for one in apps_of(found.session, kernel) if one.name == found.service), None)
    return PublicTarget(kernel, app, found.closes_at) if kernel is not None and app is not None else None


def _open_at(now: datetime | Now) -> QuerySet[PublicApp]:
    return PublicApp.objects.filter(Q(closes_at=None) | Q(closes_at__gt=now), opened_by__is_active=True)


def _show_again(sessions: SessionQuerySet) -> None:
    """Increment the versions of these sessions, so that browsers reload them after commit."""
    sessions.update(version=F("version") + 1)
    changed = list(sessions.values_list("pk", "owner_id", "status", "version"))
    publish_on_commit(SessionEvent(str(pk), str(owner), status, version) for pk, owner, status, version in changed)
