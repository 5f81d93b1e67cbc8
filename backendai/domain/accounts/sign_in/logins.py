"""Limits failed sign-ins by counters in the database, which survive restarts."""

from __future__ import annotations

import hashlib
import ipaddress
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from backendai.domain.accounts.models import LoginCount

FREE_TRIES, FREE_TRIES_OF_ADDRESS = 5, 50
FREE_TRIES_EVERYWHERE = 30  # for one account, from all addresses together
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=30), timedelta(minutes=15)
_FORGOTTEN_AFTER = timedelta(hours=1)
_MOST_DOUBLINGS = 10
_IPV6_SITE = 64  # anyone who has one address of such a network has them all


def begin_login(email: str, address: str, *, now: datetime, everywhere: bool = True) -> timedelta | None:
    """Count a sign-in attempt; return how long to wait after too many, else None.

    Call it before checking the password, so that parallel attempts count. Unknown accounts are counted too.
    ``everywhere`` False leaves out the counter over all addresses, for browsers in which the account has signed in
    before.
    """
    LoginCount.objects.filter(last_at__lt=now - _FORGOTTEN_AFTER).delete()
    limits = {_account_key(email, address): FREE_TRIES, _address_key(address): FREE_TRIES_OF_ADDRESS}
    if everywhere:
        limits[_everywhere_key(email)] = FREE_TRIES_EVERYWHERE
    with transaction.atomic():
        rows = {key: _row(key, now) for key in limits}
        until = max((row.blocked_until for row in rows.values() if row.blocked_until), default=now)
        if until > now:
            return until - now
        for key, row in rows.items():
            _count(row, limits[key], now)
    return None


def end_login(email: str, address: str, *, everywhere: bool = True) -> None:
    """Delete the attempts of this account from this address after a sign-in.

    Attempts of others from the address, or for the account from other addresses, stay counted.
    """
    LoginCount.objects.filter(pk=_account_key(email, address)).delete()
    shared = [_address_key(address), *([_everywhere_key(email)] if everywhere else [])]
    LoginCount.objects.filter(pk__in=shared, attempts__gt=0).update(attempts=F("attempts") - 1)


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
    return _digest("account", email.strip().lower(), network_of(address))


def _everywhere_key(email: str) -> str:
    return _digest("everywhere", email.strip().lower())


def _address_key(address: str) -> str:
    return _digest("address", network_of(address))


def network_of(address: str) -> str:
    """Return the network by which attempts are counted: the /64 network of an IPv6 address, else the address itself."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
        return str(ipaddress.ip_network((found, _IPV6_SITE), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
