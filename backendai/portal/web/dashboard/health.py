"""Checks the parts of the platform from a web process. Each check has a timeout of a second."""

from __future__ import annotations

import http.client
import platform
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import django
import redis
from django.conf import settings
from django.db import connection
from redis.exceptions import RedisError

from backendai.base.core.durations import describe_duration
from backendai.base.core.slots import format_size
from backendai.base.process.listeners import reached_at
from backendai.base.texts.translation import gettext as _
from backendai.domain.cluster.epochs import has_other_portal
from backendai.domain.cluster.models import Agent, Reachability
from backendai.domain.cluster.services import last_pass_at
from backendai.portal.web.frame.build import build_text

_PATIENCE_SECONDS = 1.0
_STALE_PASS, _STALE_REPAIR, _STALE_BEAT = timedelta(seconds=15), timedelta(minutes=2), timedelta(seconds=15)
_LEAST_FREE = 2**30
_PACKAGES = ("djangorestframework", "channels", "celery", "aiohttp", "pydantic", "redis")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the platform: its state (True: healthy; None: unknown), and a text about it."""

    name: str
    is_well: bool | None
    text: str


def health(now: datetime) -> list[Part]:
    """Return the state of every part, the central ones first."""
    return [
        Part(_("Web"), True, _("answers: you are reading it")),
        _loop(_("Scheduler"), "pass", now, _STALE_PASS),
        _loop(_("Repair"), "repair", now, _STALE_REPAIR),
        _loop(_("Idle sessions"), "idle", now, _STALE_REPAIR),
        _beat(now),
        _database(),
        _disk(),
        _broker(),
        _other_portals(),
        _apps(),
        _reachability(now),
    ]


def versions() -> list[tuple[str, str]]:
    """Return the versions of the portal, its system, packages and database."""
    rows = [("Python", platform.python_version()), ("Django", django.get_version()), (_("System"), platform.platform())]
    database = (connection.display_name, _database_version())
    return [(_("Portal"), build_text()), *rows, *_packages(), database]


def agents_heard(now: datetime) -> list[Agent]:
    """Return the agents that may reconnect, those with the oldest contact first (at most 200)."""
    return list(Agent.objects.registered().order_by("last_seen_at", "name")[:200])


@cache
def _packages() -> list[tuple[str, str]]:
    """Return name and version of the installed packages; read once, as a process keeps its code."""
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def _loop(name: str, lease: str, now: datetime, stale: timedelta) -> Part:
    last = last_pass_at(lease)
    if last is None:
        return Part(name, False, _("has not run yet"))
    return Part(name, now - last <= stale, _("last pass ended %(time)s") % {"time": _since(now - last)})


def _beat(now: datetime) -> Part:
    mark = Path(settings.DATA_DIR) / "beat.alive"
    try:
        ticked = datetime.fromtimestamp(mark.stat().st_mtime, UTC)
    except OSError:
        return Part(_("Beat"), None, _("not watched here; scheduling does not depend on it"))
    return Part(_("Beat"), now - ticked <= _STALE_BEAT, _("last tick %(time)s") % {"time": _since(now - ticked)})


def _database() -> Part:
    return Part(_("Database"), True, f"{connection.display_name} {_database_version()}")


def _disk() -> Part:
    folder = Path(settings.DATA_DIR)
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Part(_("Disk"), False, _("%(folder)s: %(error)s") % {"folder": folder, "error": error.strerror})
    text = _("%(free)s free at %(folder)s") % {"free": format_size(free), "folder": folder}
    return Part(_("Disk"), free >= max(_LEAST_FREE, 2 * settings.DISK_RESERVE), text)


def _database_version() -> str:
    return ".".join(map(str, connection.get_database_version()))


def _broker() -> Part:
    try:
        client = redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=_PATIENCE_SECONDS, socket_connect_timeout=_PATIENCE_SECONDS
        )
        found = client.info("server")
    except (RedisError, ValueError):
        return Part(_("Broker"), False, _("unreachable; everything continues by polling, more slowly"))
    kind = "Valkey" if "valkey_version" in found else "Redis"
    number = found.get("valkey_version") or found.get("redis_version")
    return Part(_("Broker"), True, f"{kind} {number}")


def _other_portals() -> Part:
    if not has_other_portal():
        return Part(_("Other portals"), True, _("no other portal uses this deployment name at the broker"))
    text = _(
        "another portal uses the deployment name %(name)s at the same broker: stop one of the two, or give "
        "it a broker and a name of its own"
    )
    return Part(_("Other portals"), False, text % {"name": settings.DEPLOYMENT})


def _apps() -> Part:
    host = reached_at(settings.APPS_HOST)
    address = http.client.HTTPConnection(host, settings.APPS_PORT, timeout=_PATIENCE_SECONDS)
    try:
        address.request("GET", "/healthz")
        status = address.getresponse().status
    except (OSError, http.client.HTTPException):
        return Part(
            _("App proxy"),
            False,
            _("does not answer at %(host)s:%(apps_port)s, as seen from here")
            % {"host": host, "apps_port": settings.APPS_PORT},
        )
    finally:
        address.close()
    return Part(
        _("App proxy"),
        status == http.client.OK,
        _("answers at %(host)s:%(apps_port)s") % {"host": host, "apps_port": settings.APPS_PORT},
    )


def _reachability(now: datetime) -> Part:
    since = Reachability.objects.values_list("since", flat=True).first()
    if since is None:
        return Part(_("Agent API"), None, _("no data yet"))
    return Part(
        _("Agent API"),
        True,
        _("reachable without interruption for %(time)s") % {"time": describe_duration(now - since)},
    )


def _since(time: timedelta) -> str:
    return _("%(time)s ago") % {"time": describe_duration(max(time, timedelta(0)))}
