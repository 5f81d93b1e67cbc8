"""Writes news into the database of a platform; runs inside its ``manage.py shell``."""

from __future__ import annotations

from datetime import timedelta

from backendai.domain.cluster.idle.checkers import Places, write_checker
from backendai.domain.cluster.models import IdleChecker

_NAME = "news-of-idleness"


def make_idle() -> None:
    """Let sessions that nobody uses be warned five seconds after their start, two hours before their end."""
    values = {"name": _NAME, "limit": timedelta(hours=2, minutes=1), "warning": timedelta(minutes=1)}
    checker = write_checker(None, IdleChecker(), values, Places(is_site_wide=True))
    # Shorter and longer than administrators may set: a test waits for neither an hour nor a minute.
    told = {"limit": timedelta(hours=2, seconds=5), "warning": timedelta(hours=2)}
    print(IdleChecker.objects.filter(pk=checker.pk).update(**told))  # noqa: T201


def drop_idle() -> None:
    """Take the idle checker away again."""
    print(IdleChecker.objects.filter(name=_NAME).delete())  # noqa: T201
