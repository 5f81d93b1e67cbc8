"""Whether agents that lack an image run sessions without containers until it is there; a superadmin decides."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from backendai.accounts.models import User
from backendai.activity.services import audit
from backendai.cluster.site_models import SiteSetting

_NAME = "native_until_image"  # no setting of the site's page: it ends by itself


def runs_natively() -> bool:
    """Return whether it was asked for and is not over; one query."""
    return SiteSetting.objects.filter(name=_NAME, value=True).exists()


def allow_native_sessions(user: User, *, now: datetime) -> None:
    """Let sessions run as native processes of the agents' machine until its image is there."""
    with transaction.atomic():
        if not runs_natively():
            told = {"value": True, "changed_at": now, "changed_by": user}
            SiteSetting.objects.update_or_create(name=_NAME, defaults=told)
            audit(user.pk, "native-sessions.allow", "site-settings", ["site"])


def end_native_sessions(user: User | None) -> None:
    """Go back to containers; None: the platform, for the image is there. Native sessions that run go on."""
    with transaction.atomic():
        if SiteSetting.objects.filter(name=_NAME).delete()[0]:
            audit(user.pk if user else None, "native-sessions.end", "site-settings", ["site"])
