"""Renames sessions, and changes their labels and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from backendai.base.core.errors import Conflict
from backendai.base.core.labels import check_labels, check_note, check_required
from backendai.base.core.messages import Message
from backendai.base.core.names import check_session_name
from backendai.base.wire.browser import SessionEvent, publish_on_commit
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.accounts.policies.applicable import (
    DOMAIN,
    KEY_PAIR,
    PROJECT,
    USER,
    key_of,
    limited_holders,
)
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import LIVE, Status

# While an agent prepares a session, programs might get the old or the new name.
_BEING_PREPARED = frozenset({Status.PULLING, Status.CREATING})


def may_be_renamed(session: ComputeSession) -> bool:
    """Return whether the session can be renamed now."""
    return session.status in LIVE - _BEING_PREPARED


def rename_session(session: ComputeSession, user: User, name: str) -> ComputeSession:
    """Rename a session and return it. Programs that are running keep the old name. The caller checks that the user may
    see the session.

    Raises UserError for an invalid name; Conflict if the session has ended or is being prepared, or if another live
    session of the owner has the name (the error's ``session`` is the id of the other one).
    """
    check_session_name(name)
    if name == session.name:
        return session
    try:
        with transaction.atomic():
            live = ComputeSession.objects.filter(pk=session.pk, status__in=LIVE - _BEING_PREPARED)
            if not live.update(name=name, version=F("version") + 1):
                raise _too_late(session)
            names = both_names(user, session.owner)
            audit(user.pk, "session.rename", "session", [session.pk], changes={"name": [session.name, name]}, **names)
            renamed: ComputeSession = ComputeSession.objects.get(pk=session.pk)
            publish_on_commit([SessionEvent(str(renamed.pk), str(renamed.owner_id), renamed.status, renamed.version)])
    except IntegrityError as error:
        raise _taken(session, name) from error
    return renamed


def label_session(
    session: ComputeSession, user: User, *, labels: Mapping[str, str | None] | None = None, note: str | None = None
) -> None:
    """Change labels and note of a session, also of an ended one; kernels that start later see the new labels. The
    caller checks that the user may see the session.

    ``labels``: the changes; None removes one. Raises UserError for an invalid one, and for removing one that a policy
    requires.
    """
    with transaction.atomic():
        now = ComputeSession.objects.select_for_update(of=("self",)).only("labels", "note").get(pk=session.pk)
        merged = {**now.labels, **(labels or {})}
        new: dict[str, Any] = {
            "labels": check_labels({key: value for key, value in merged.items() if value is not None}),
            "note": now.note if note is None else check_note(note),
        }
        changes = {name: [old, new[name]] for name in new if (old := getattr(now, name)) != new[name]}
        if not changes:
            return
        check_required(new["labels"], _required_of(session) & now.labels.keys())
        ComputeSession.objects.filter(pk=session.pk).update(**new, version=F("version") + 1)
        names = {"name": session.name, **both_names(user, session.owner)}
        audit(user.pk, "session.label", "session", [session.pk], changes=changes, **names)
        session.refresh_from_db(fields=["labels", "note", "status", "version"])
        publish_on_commit([SessionEvent(str(session.pk), str(session.owner_id), session.status, session.version)])


def _required_of(session: ComputeSession) -> set[str]:
    keys = {USER: session.owner_id, PROJECT: session.project_id, DOMAIN: session.project.domain_id}
    keys |= {KEY_PAIR: session.access_key} if session.access_key else {}
    limited = limited_holders([key_of(scope, identity) for scope, identity in keys.items()])
    return {key for holder in limited for key in holder.policy.required_labels}


def _too_late(session: ComputeSession) -> Conflict:
    session.refresh_from_db(fields=["status"])
    if session.status in _BEING_PREPARED:
        return Conflict("The session is being prepared: rename it when it runs.", code="being-prepared")
    return Conflict("The session has ended: it can no longer be renamed.", code="already-ended")


def _taken(session: ComputeSession, name: str) -> Conflict:
    rows = ComputeSession.objects.filter(owner=session.owner_id, name=name, status__in=LIVE)
    other = rows.exclude(pk=session.pk).first()
    which = (
        Message(
            " ({status}, launched {created_at} UTC)",
            status=other.get_status_display(),
            created_at=f"{other.created_at:%Y-%m-%d %H:%M}",
        )
        if other
        else ""
    )
    return Conflict(
        "Another live session of this owner has the name {name}{which}; choose another one.",
        name=repr(name),
        which=which,
        field="name",
        code="name-taken",
        session=str(other.pk) if other else "",
    )
