"""Stores the answers to requests with an idempotency key, by which a repeated request is recognized.

Answers may have secrets, such as the text of a new token. They are encrypted with ``SECRET_KEY`` and the key of the
request, of which only a digest is stored: neither the database nor a backup with ``SECRET_KEY`` can decrypt them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.fernet import InvalidToken
from django.utils.crypto import salted_hmac

from backendai.base.core.errors import Conflict, KeyReused, Overloaded
from backendai.domain.accounts.models import StoredAnswer, User
from backendai.domain.accounts.secret_box import box_for

KEPT_FOR = timedelta(days=1)
ABANDONED_AFTER = timedelta(minutes=5)  # longer than any request takes: the process that served it has ended
_MOST_KEPT = 10_000  # of one person
_LARGEST = 64 * 1024  # characters
_MOST_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A POST of a user to a path, and its key."""

    user: User
    key: str
    path: str
    body: bytes

    @property
    def digest(self) -> str:
        """The digest by which its answer is found, without the body."""
        return hashlib.sha256(f"{self.path}\n{self.key}".encode()).hexdigest()

    @property
    def body_digest(self) -> str:
        """The digest of the body, which nobody can compare with guesses: a body may have a password."""
        return salted_hmac(f"body of {self.key}", self.body, algorithm="sha256").hexdigest()


def claim(asked: KeyedRequest, *, now: datetime) -> StoredAnswer:
    """Return the row of a request: a new one without a status, to be filled by ``keep``, or the earlier one with it.

    Raises KeyReused for another body, Conflict while the earlier request is in progress, and Overloaded for too many
    keys. An abandoned request is served again.
    """
    row, is_new = StoredAnswer.objects.get_or_create(
        user=asked.user, digest=asked.digest, defaults={"body_digest": asked.body_digest, "asked_at": now}
    )
    if is_new:
        if StoredAnswer.objects.filter(user=asked.user).count() > _MOST_KEPT:
            row.delete()
            raise Overloaded("A person may use {most} idempotency keys a day.", most=_MOST_KEPT, code="too-many-keys")
    elif row.body_digest != asked.body_digest:
        raise KeyReused("This idempotency key belongs to another request: use a new one.")
    elif row.status is None:
        overdue = StoredAnswer.objects.filter(pk=row.pk, status=None, asked_at__lt=now - ABANDONED_AFTER)
        if not overdue.update(asked_at=now):
            raise Conflict(
                "The request with this idempotency key is in progress: ask again later.", code="request-in-progress"
            )
        row.asked_at = now
    return row


def keep(row: StoredAnswer, asked: KeyedRequest, status: int, text: str) -> None:
    """Store the answer to a claimed request; of one longer than 64 KiB only the status."""
    sealed = box_for(_purpose(asked)).encrypt(text.encode()).decode() if len(text) <= _LARGEST else ""
    StoredAnswer.objects.filter(pk=row.pk, asked_at=row.asked_at).update(status=status, sealed=sealed)


def release(row: StoredAnswer) -> None:
    """Forget a claimed request, which was refused."""
    StoredAnswer.objects.filter(pk=row.pk, asked_at=row.asked_at).delete()


def answer_to(row: StoredAnswer, asked: KeyedRequest) -> str:
    """Return the text of a stored answer. Raises Conflict if it was too long to be stored, or cannot be decrypted."""
    try:
        return box_for(_purpose(asked)).decrypt(row.sealed.encode()).decode()
    except InvalidToken:
        text = "This request was served before, and its answer is not kept: read what it has made."
        raise Conflict(text, code="already-done") from None


def delete_old_answers(now: datetime) -> int:
    """Delete answers older than a day, a bounded number of them; returns how many."""
    old = StoredAnswer.objects.filter(asked_at__lt=now - KEPT_FOR).values_list("pk", flat=True)[:_MOST_AT_ONCE]
    number: int = StoredAnswer.objects.filter(pk__in=list(old)).delete()[0]
    return number


def _purpose(asked: KeyedRequest) -> bytes:
    return f"answer to {asked.user.pk} {asked.key}".encode()
