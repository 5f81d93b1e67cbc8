"""Apps that are open to everybody who reaches their address: opened and closed by whoever may see the session."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from backendai.accounts.acting import both_names
from backendai.accounts.models import User
from backendai.activity.services import audit
from backendai.cluster.site import site_settings
from backendai.compute.models import ComputeSession, Kernel, PublicApp
from backendai.compute.services.apps import App, apps_of, host_of, main_kernel
from backendai.core.errors import Conflict, NotFound

OPENED, CLOSED = "app.open-to-everybody", "app.close-to-others"


def open_to_everybody(user: User, session: ComputeSession, name: str, *, now: datetime) -> App:
    """Let everybody use an app of a session that the user may see, until it is closed or the session ends; returns it.

    Raises NotFound (no such app) and Conflict (the site does not have it, or the app cannot be opened now).
    """
    if not site_settings().public_apps:
        raise Conflict("Here no app is opened to everybody: an administrator has to allow it.", code="no-public-apps")
    app = _app(session, name, main_kernel(session))
    if app.code:
        raise Conflict(app.reason, code=app.code)
    values = {"label": _label(session, name), "opened_by": user, "opened_at": now}
    with transaction.atomic():
        _, is_new = PublicApp.objects.get_or_create(session=session, service=name, defaults=values)
        if is_new:
            _audit(user, OPENED, session, name)
    return app


def close_to_others(user: User, session: ComputeSession, name: str) -> None:
    """Take it back; who uses it now is cut off within seconds. What was not open stays so."""
    with transaction.atomic():
        gone, _ = PublicApp.objects.filter(session=session, service=name).delete()
        if gone:
            _audit(user, CLOSED, session, name)


def public_services(session: ComputeSession) -> frozenset[str]:
    """Return the names of the session's apps that are open to everybody now; none where the site does not allow it."""
    if not site_settings().public_apps:
        return frozenset()
    return frozenset(session.public_apps.values_list("service", flat=True))


def public_app_at(host: str) -> tuple[Kernel, App] | None:
    """Return the app that everybody may use at this host name, with its kernel (and agent), or None. It is open as long
    as whoever opened it may see the session."""
    rows = PublicApp.objects.select_related("session__image", "session__resource_group", "opened_by")
    found = rows.filter(label=host.partition(".")[0], opened_by__is_active=True).first()
    if found is None or not site_settings().public_apps or host_of(found.session, found.service) != host:
        return None
    if not ComputeSession.objects.visible_to(found.opened_by).filter(pk=found.session_id).exists():
        return None
    kernel = main_kernel(found.session)
    app = next((one for one in apps_of(found.session, kernel) if one.name == found.service), None)
    return (kernel, app) if kernel is not None and app is not None else None


def _app(session: ComputeSession, name: str, kernel: Kernel | None) -> App:
    for app in apps_of(session, kernel):
        if app.name == name:
            return app
    raise NotFound(f"This session has no app named {name[:32]}.", code="no-such-app")


def _label(session: ComputeSession, name: str) -> str:
    return host_of(session, name).partition(".")[0]


def _audit(user: User, deed: str, session: ComputeSession, name: str) -> None:
    audit(user.pk, deed, "session", [session.pk], service=name, **both_names(user, session.owner))
