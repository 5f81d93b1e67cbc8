"""The superadmin's decision to run sessions without containers until an image is built."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import SiteSetting

_NAME = "native_until_image"  # no setting of the site's page: it ends by itself


def runs_natively() -> bool:
    """Return whether native sessions are allowed now; one query."""
    return SiteSetting.objects.filter(name=_NAME, value=True).exists()


def allow_native_sessions(user: User, *, now: datetime) -> None:
    """Let sessions run as native processes on the agents' machine until its image is built."""
    with transaction.atomic():
        if not runs_natively():
            told = {"value": True, "changed_at": now, "changed_by": user}
            SiteSetting.objects.update_or_create(name=_NAME, defaults=told)
            audit(user.pk, "native-sessions.allow", "site-settings", ["site"])


def end_native_sessions(user: User | None) -> None:
    """Use containers again for new sessions; running native sessions continue.

    ``user`` None: the platform, as the image is built.
    """
    with transaction.atomic():
        if SiteSetting.objects.filter(name=_NAME).delete()[0]:
            audit(user.pk if user else None, "native-sessions.end", "site-settings", ["site"])
