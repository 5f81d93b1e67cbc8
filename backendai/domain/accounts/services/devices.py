"""Signs in programs on other computers (the device flow of RFC 8628).

A program opens a request, a person allows it by its short code on a page, and the program gets an access token by its
long one. Each code works once.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from backendai.base.core.errors import Conflict, NotFound, Overloaded, UserError
from backendai.base.core.names import clean_line
from backendai.domain.accounts.models import AccessToken, DeviceRequest, User
from backendai.domain.accounts.scopes import all_scopes, clean_scopes
from backendai.domain.accounts.services.tokens import LONGEST_NAME, create_token, digest_of
from backendai.domain.accounts.sign_in.logins import begin_login, end_login, network_of
from backendai.domain.activity.services import audit

VALID_FOR = timedelta(minutes=10)
INTERVAL = timedelta(seconds=5)
DAYS = (7, 30, 90)
LONGEST_CLIENT = 100
MOST_OF_ADDRESS, MOST_OPEN = 50, 10_000
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, so no words; none looks like a digit
_HALF = 4
_MOST_AT_ONCE = 5_000
_State = DeviceRequest.State


class DeviceRefused(UserError):
    """There is no token for this code, or none yet; ``code`` is the error of RFC 8628 in kebab-case."""


def open_request(
    client_name: str, scopes: Collection[str], address: str, *, now: datetime
) -> tuple[DeviceRequest, str]:
    """Write a request of a program at this address; return it and its secret code. No ``scopes``: all.

    Raises UserError for a name or scope, and Overloaded while too many are open.
    """
    name = clean_line(client_name, longest=LONGEST_CLIENT, field="client_name")
    if not name:
        raise UserError("Name the program and its computer.", field="client_name", code="invalid-name")
    wanted, network = clean_scopes(scopes or all_scopes(), field="scope"), network_of(address)
    rows = _open(now)
    if rows.filter(network=network).count() >= MOST_OF_ADDRESS or rows.count() >= MOST_OPEN:
        raise Overloaded("Too many computers are asking. Try again in {seconds} s.", seconds=VALID_FOR.seconds)
    text = secrets.token_urlsafe(32)
    row = DeviceRequest.objects.create(
        digest=digest_of(text),
        user_code="-".join(_some_letters() for _ in range(2)),
        client_name=name,
        address=address[:45],
        network=network,
        scopes=wanted,
        created_at=now,
        expires_at=now + VALID_FOR,
    )
    return row, text


def find_request(user: User, code: str, address: str, *, now: datetime) -> DeviceRequest:
    """Return the unanswered request with this code, as a person typed it.

    Wrong codes are counted as failed sign-ins are. Raises UserError at ``code``.
    """
    name = f"device codes of {user.pk}"
    if wait := begin_login(name, address, now=now):
        seconds = round(wait.total_seconds())
        raise UserError(
            "Too many wrong codes. Try again in {seconds} s.", seconds=seconds, field="code", code="rate-limited"
        )
    letters = "".join(letter for letter in code.upper() if letter in _LETTERS)
    found: DeviceRequest | None = _open(now).filter(user_code=f"{letters[:_HALF]}-{letters[_HALF:]}").first()
    if found is None:
        text = "No computer asks with this code now. Compare it with the code there, or start again there."
        raise NotFound(text, field="code", code="no-device-code")
    end_login(name, address)
    return found


def allow_request(user: User, request: DeviceRequest, days: int, *, now: datetime) -> None:
    """Let the program get a token of the user that is valid for so many days. Raises Conflict after an answer."""
    if days not in DAYS:
        raise UserError("Choose one of the offered ends.", field="days", code="invalid-date")
    _answer(user, request, _State.ALLOWED, now, days=days)


def refuse_request(user: User, request: DeviceRequest, *, now: datetime) -> None:
    """Refuse the program a token. Raises Conflict after an answer."""
    _answer(user, request, _State.REFUSED, now)


def redeem_device_code(text: str, *, now: datetime) -> tuple[AccessToken, str]:
    """Create the token of an allowed request; return it and its text. The code is of no use afterwards.

    Raises DeviceRefused.
    """
    row = DeviceRequest.objects.filter(digest=digest_of(text)).first()
    if row is None:
        raise DeviceRefused("This code is unknown or was used: start again.", code="invalid-grant")
    if row.expires_at <= now:
        raise DeviceRefused("Nobody allowed this computer in time: start again.", code="expired-token")
    if row.state == _State.PENDING:
        is_fast = row.asked_at is not None and now - row.asked_at < INTERVAL
        DeviceRequest.objects.filter(pk=row.pk).update(asked_at=now)
        if is_fast:
            seconds = INTERVAL.seconds
            raise DeviceRefused("Wait {seconds} s before asking again.", seconds=seconds, code="slow-down")
        raise DeviceRefused("Nobody has answered yet: ask again.", code="authorization-pending")
    with transaction.atomic():
        # Locked first, as a deactivation does: it ends this token, or there will be none.
        user = User.objects.select_for_update().filter(pk=row.user_id, is_active=True).first()
        if user is None or row.state == _State.REFUSED:
            raise DeviceRefused("This computer was refused.", code="access-denied")
        if not DeviceRequest.objects.filter(pk=row.pk).delete()[0]:
            raise DeviceRefused("This code is unknown or was used: start again.", code="invalid-grant")
        name, expires_at = row.client_name[:LONGEST_NAME], now + timedelta(days=row.days)
        return create_token(user, name, scopes=row.scopes, expires_at=expires_at)


def delete_ended_requests(now: datetime) -> int:
    """Delete requests that ended before, a bounded number of them; return how many.

    They stay for as long again as they were valid, so that their programs hear how they ended.
    """
    old = DeviceRequest.objects.filter(expires_at__lte=now - VALID_FOR).values_list("pk", flat=True)[:_MOST_AT_ONCE]
    number: int = DeviceRequest.objects.filter(pk__in=list(old)).delete()[0]
    return number


def _open(now: datetime) -> QuerySet[DeviceRequest]:
    return DeviceRequest.objects.filter(state=_State.PENDING, expires_at__gt=now)


def _answer(user: User, request: DeviceRequest, state: str, now: datetime, *, days: int = 0) -> None:
    with transaction.atomic():
        # Locked first: what ends the person's credentials meanwhile ends this answer, too, or refuses it here.
        held = User.objects.select_for_update().get(pk=user.pk)
        is_same = held.is_active and held.credentials_version == user.credentials_version
        if not is_same or not _open(now).filter(pk=request.pk).update(state=state, user=user, days=days):
            text = "This computer was answered already, or stopped asking."
            raise Conflict(text, field="code", code="device-answered")
        action = "device.allow" if state == _State.ALLOWED else "device.refuse"
        told = {"client": request.client_name, "address": request.address, "scopes": request.scopes}
        audit(user.pk, action, "device-request", [request.pk], **told, **({"days": days} if days else {}))


def _some_letters() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(_HALF))
