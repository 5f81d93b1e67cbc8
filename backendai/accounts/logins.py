"""Guessing passwords is made slow: counters in the database, which a restart or an empty cache does not forget."""

from __future__ import annotations

import hashlib
import ipaddress
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from backendai.accounts.models import LoginCount

FREE_TRIES, FREE_TRIES_OF_ADDRESS = 5, 50
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=30), timedelta(minutes=15)
_FORGOTTEN_AFTER = timedelta(hours=1)
_MOST_DOUBLINGS = 10
_IPV6_SITE = 64  # whoever has one address of such a network has them all


def begin_login(email: str, address: str, *, now: datetime) -> timedelta | None:
    """Count an attempt before its password is checked, so that many at once do not slip through; return how long to
    wait when there were too many, else None. Accounts that do not exist are counted in the same way."""
    LoginCount.objects.filter(last_at__lt=now - _FORGOTTEN_AFTER).delete()
    with transaction.atomic():
        own = _row(_account_key(email, address), now)
        whole = _row(_address_key(address), now)
        until = max((row.blocked_until for row in (own, whole) if row.blocked_until), default=now)
        if until > now:
            return until - now
        _count(own, FREE_TRIES, now)
        _count(whole, FREE_TRIES_OF_ADDRESS, now)
    return None


def end_login(email: str, address: str) -> None:
    """Forget the attempts of somebody who has signed in; those of others from the same address stay."""
    LoginCount.objects.filter(pk=_account_key(email, address)).delete()
    LoginCount.objects.filter(pk=_address_key(address), attempts__gt=0).update(attempts=F("attempts") - 1)


def _row(key: str, now: datetime) -> LoginCount:
    row, _ = LoginCount.objects.select_for_update().get_or_create(pk=key, defaults={"last_at": now})
    return row


def _count(row: LoginCount, free: int, now: datetime) -> None:
    row.attempts, row.last_at = row.attempts + 1, now
    if row.attempts >= free:
        doublings = min(row.attempts - free, _MOST_DOUBLINGS)
        row.blocked_until = now + min(_FIRST_WAIT * 2**doublings, _LONGEST_WAIT)
    row.save()


def _account_key(email: str, address: str) -> str:
    return _digest("account", email.strip().lower(), _network(address))


def _address_key(address: str) -> str:
    return _digest("address", _network(address))


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
        return str(ipaddress.ip_network((found, _IPV6_SITE), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
