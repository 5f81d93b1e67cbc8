"""Limits how often people may call the API, open pages and launch sessions. Superadmins have no limits."""

from __future__ import annotations

import math
from datetime import datetime

from django.conf import settings

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.wire.rates import Rate, take
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.sign_in.logins import network_of
from backendai.domain.activity.request_facts import note_for_logs

_MINUTE = 60.0
_QUARTER = 900.0


class TooFast(UserError):
    """More requests than the limit allows; ``seconds`` is the time until the next try."""

    code = "rate-limited"

    def __init__(self, seconds: float) -> None:
        self.seconds = max(1, math.ceil(seconds))
        super().__init__(
            Message("Too many requests. Try again in {seconds} s.", seconds=self.seconds), seconds=self.seconds
        )


def check_rates(user: User, *, now: datetime, key_pair: KeyPair | None = None, launches: bool = False) -> None:
    """Count one API request of the user and the key pair, and with ``launches`` one launch.

    Raises TooFast, and then counts nothing. The request's log lines name the user from here on.
    """
    note_for_logs(user_id=user.pk)
    rates = [Rate(f"key-pair:{key_pair.pk}", key_pair.rate_limit, _QUARTER, key_pair.rate_limit)] if key_pair else []
    if not user.is_superadmin:
        rates.append(Rate(f"api:{user.pk}", settings.RATE_API, _MINUTE, settings.RATE_API))
        rates += [_launches(user)] if launches else []
    _take(rates, now)


def check_launch_rate(user: User, sessions: int, *, now: datetime) -> None:
    """Count the sessions of one launch from a page. Raises TooFast, and then counts nothing."""
    _take([] if user.is_superadmin else [_launches(user, sessions)], now)


def check_page_rate(user: User, *, now: datetime) -> None:
    """Count one page for this account. Raises TooFast. The request's log lines name the user from here on."""
    note_for_logs(user_id=user.pk)
    _take([] if user.is_superadmin else [_pages(str(user.pk))], now)


def check_stranger_rate(address: str, *, now: datetime) -> None:
    """Count one page for an address without a login. Raises TooFast."""
    _take([_pages(network_of(address))], now)


def _pages(name: str) -> Rate:
    return Rate(f"pages:{name}", settings.RATE_PAGES, _MINUTE, settings.RATE_PAGES)


def _launches(user: User, sessions: int = 1) -> Rate:
    return Rate(f"launch:{user.pk}", settings.RATE_LAUNCH, _MINUTE, settings.RATE_LAUNCH_BURST, sessions)


def _take(rates: list[Rate], now: datetime) -> None:
    if wait := take(rates, now=now.timestamp()):
        raise TooFast(wait)
