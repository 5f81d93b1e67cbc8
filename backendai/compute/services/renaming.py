"""Giving a session another name."""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import F

from backendai.accounts.acting import both_names
from backendai.accounts.models import User
from backendai.activity.services import audit
from backendai.compute.models import ComputeSession
from backendai.compute.status import LIVE
from backendai.core.errors import Conflict
from backendai.core.names import check_session_name
from backendai.wire.browser import SessionEvent, publish_on_commit


def rename_session(session: ComputeSession, user: User, name: str, *, now: datetime) -> ComputeSession:
    """Return the session, which the user may see, with its new name. Inside, programs go on to see the old one.

    Raises UserError when the name breaks the rule for names; Conflict when the session has ended, or its owner has
    another live one of this name.
    """
    check_session_name(name)
    if name == session.name:
        return session
    try:
        with transaction.atomic():
            live = ComputeSession.objects.filter(pk=session.pk, status__in=LIVE)
            if not live.update(name=name, version=F("version") + 1, changed_at=now):
                raise Conflict("The session has ended: its name stays what it was.", code="already-ended")
            names = both_names(user, session.owner)
            audit(user.pk, "session.rename", "session", [session.pk], changes={"name": [session.name, name]}, **names)
            renamed: ComputeSession = ComputeSession.objects.get(pk=session.pk)
            publish_on_commit([SessionEvent(str(renamed.pk), str(renamed.owner_id), renamed.status, renamed.version)])
    except IntegrityError as error:
        raise Conflict(
            f"Another live session of this owner has the name {name!r}; choose another one.",
            field="name",
            code="name-taken",
        ) from error
    return renamed
