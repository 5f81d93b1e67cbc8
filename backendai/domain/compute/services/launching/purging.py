"""Purges a user who has no live sessions."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Count

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import kinds_with
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import check_purge, purge
from backendai.domain.activity.models import AccessNotice, NoticeChoice
from backendai.domain.compute.models import ComputeSession, EarlierLog, Kernel, KernelLog, SessionNotice
from backendai.domain.compute.services.images.own_images import delete_images_of
from backendai.domain.compute.services.requests.session_files import delete_files_of
from backendai.domain.compute.status import Status
from backendai.domain.storage.services import refuse_while_owning

_BATCH = 200  # sessions; the logs of a kernel have up to 44 MiB


def purge_user(actor: User, user: User, *, typed: str, now: datetime) -> None:
    """Delete all personal data of a deactivated account. ``typed``: its e-mail address as confirmation. Ended sessions
    are kept without commands, variables and logs. Raises Conflict with the number of live sessions or undeleted
    folders."""
    check_purge(actor, user, typed=typed)
    _refuse_while_needed(user)
    _clear_sessions_of(user)
    with transaction.atomic():
        _refuse_while_needed(user)
        delete_images_of(user, now=now)
        delete_files_of(user)
        SessionNotice.objects.filter(owner=user).delete()
        AccessNotice.objects.filter(owner=user).delete()
        NoticeChoice.objects.filter(user=user).delete()
        purge(actor, user, typed=typed, now=now)


def live_sessions_of(user: User) -> dict[str, int]:
    """Return the number of the user's live sessions by status."""
    rows = ComputeSession.objects.live().filter(owner=user).order_by("status").values_list("status")
    return {status: number for status, number in rows.annotate(number=Count("pk"))}


def lasting_sessions_of(user: User) -> int:
    """Return how many live sessions a deactivation leaves alone: neither pending nor replicas."""
    live = ComputeSession.objects.live().filter(owner=user).exclude(status=Status.PENDING)
    return live.exclude(session_type__in=kinds_with("is_served")).count()


def _refuse_while_needed(user: User) -> None:
    if live := live_sessions_of(user):
        number = sum(live.values())
        counts = [Message("{number} {status}", number=count, status=status) for status, count in live.items()]
        raise Conflict(
            "Active sessions: {number} ({counts}). Terminate them first.",
            number=number,
            counts=Message.joined(counts, ", "),
            code="sessions-live",
            sessions=live,
        )
    refuse_while_owning(user)


def _clear_sessions_of(user: User) -> None:
    """Delete commands, variables and logs of the user's sessions; their usage is kept. Deletes some sessions at a time,
    each batch in its own transaction, as one statement for all of them could exceed the time limit of statements."""
    ids = list(ComputeSession.objects.filter(owner=user).values_list("pk", flat=True))
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        kernels = Kernel.objects.filter(session__in=some)
        with transaction.atomic():
            KernelLog.objects.filter(kernel__in=kernels).delete()
            EarlierLog.objects.filter(kernel__in=kernels).delete()
            kernels.update(environ={}, startup_command="")
            ComputeSession.objects.filter(pk__in=some).update(environ={}, spec={}, startup_command="")
