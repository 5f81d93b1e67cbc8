"""Records sign-ins, sign-outs and failed sign-ins."""

from __future__ import annotations

from datetime import datetime

from django.contrib.sessions.models import Session
from django.db import transaction
from django.http import HttpRequest

from backendai.domain.accounts.models import Login, User
from backendai.domain.accounts.policies.applicable import lowest_of_user
from backendai.domain.activity.services import audit

_LONGEST_BROWSER = 200
_STRANGERS_SECONDS = 900


def note_login(request: HttpRequest, user: User, methods: list[str], *, now: datetime) -> Login:
    """Record a new login and its methods; return its row.

    Ends the user's oldest logins above the limit of the user's policies.
    """
    meta = request.META
    Session.objects.filter(expire_date__lt=now).delete()
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two logins at once count each other
        login = Login.objects.create(
            user=user,
            session_key=str(request.session.session_key),
            method="+".join(methods)[:32],
            address=meta.get("REMOTE_ADDR", "")[:45],
            browser=meta.get("HTTP_USER_AGENT", "")[:_LONGEST_BROWSER],
            created_at=now,
        )
        ended = _end_oldest(user, now)
        audit(user.pk, "user.sign-in", "user", [user.pk], method=login.method, address=login.address, ended=ended)
    return login


def expire_soon(request: HttpRequest) -> None:
    """Let the session of a person who is not signed in expire after a quarter of an hour."""
    if not request.user.is_authenticated:
        request.session.set_expiry(_STRANGERS_SECONDS)


def note_logout(request: HttpRequest, user: User) -> None:
    """Delete the login of this session, and record the sign-out."""
    with transaction.atomic():
        Login.objects.filter(session_key=request.session.session_key).delete()
        audit(user.pk, "user.sign-out", "user", [user.pk], address=request.META.get("REMOTE_ADDR", ""))


def note_failure(request: HttpRequest, tried: str, *, step: str = "password", user: User | None = None) -> None:
    """Record a failed sign-in.

    Of an unknown name only the beginning is stored, as it may be a password typed into the wrong field.
    """
    user = user or User.objects.filter(email=tried.strip().lower()).first()
    name = user.email if user else masked(tried)
    address = request.META.get("REMOTE_ADDR", "")
    audit(None, "user.sign-in-failed", "user", [user.pk if user else ""], tried=name, step=step, address=address)


def masked(name: str) -> str:
    """Return the first two letters of a typed name, so that its owner recognises it: ``al…``."""
    return f"{name.strip()[:2]}…"


def login_moved(old_key: str | None, request: HttpRequest) -> None:
    """Update the session key of a login after Django has changed it, as at a change of password."""
    Login.objects.filter(session_key=old_key).update(session_key=request.session.session_key)


def _end_oldest(user: User, now: datetime) -> int:
    keys = list(Login.objects.filter(user=user).order_by("-created_at", "-id").values_list("session_key", flat=True))
    good = Session.objects.filter(session_key__in=keys, expire_date__gt=now)
    lasting = set(good.values_list("session_key", flat=True))
    most = _most_logins(user)
    kept = [key for key in keys if key in lasting][:most]
    surplus = lasting.difference(kept)
    Session.objects.filter(session_key__in=surplus).delete()
    Login.objects.filter(user=user).exclude(session_key__in=kept).delete()
    return len(surplus)


def _most_logins(user: User) -> int | None:
    return lowest_of_user(user, "max_concurrent_logins")
