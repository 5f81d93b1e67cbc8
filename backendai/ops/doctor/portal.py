"""Checks of the portal's dependencies: database, broker, images, and its own loops."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from redis import Redis
from redis.exceptions import RedisError

from backendai.base.wire.broker.accounts import BrokerAway, NoAccounts, is_open_to_all, nodes_with_accounts
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.cluster.broker_access import wanted_accounts
from backendai.domain.cluster.epochs import has_other_portal
from backendai.domain.cluster.models import Agent
from backendai.ops.doctor.check import Check, ok, problem, warning

_STALE = timedelta(seconds=15)
_START = "./bin/up starts it"


def database() -> list[Check]:
    """Return whether the database answers, its settings, and whether its tables are up to date."""
    try:
        return [_database_kind(), _migrations()]
    except DatabaseError as error:
        fix = "Start the database, or correct DATABASE_URL (without it the portal keeps its own SQLite file)."
        return [problem("database", f"does not answer: {str(error).strip()}", fix)]


def broker(url: str | None = None) -> Check:
    """Check that Redis or Valkey answers.

    Without it the platform works more slowly, and pages do not refresh by themselves.
    """
    url = url or settings.REDIS_URL
    try:
        client = Redis.from_url(url, socket_connect_timeout=2, socket_timeout=2)
        info = client.info("server")
        policy = dict(client.info("memory")).get("maxmemory_policy", "")
        client.close()
    except (RedisError, OSError) as error:
        message = f"nothing answers at {_without_password(url)} ({error}); pages do not refresh by themselves"
        return warning("broker", message, f"Start it, or correct REDIS_URL ({_START} when REDIS_URL is not set).")
    name = "Valkey" if "valkey_version" in info else "Redis"
    said = f"{name} {info.get('valkey_version') or info['redis_version']} at {_without_password(url)}"
    if policy not in ("", "noeviction"):
        return warning("broker", f"{said} may drop messages ({policy})", "Set maxmemory-policy noeviction.")
    return ok("broker", said)


def broker_accounts() -> Check:
    """Check that every agent has its own broker account, so that none can read or forge messages of others."""
    if not settings.NODE_BROKER_URL:
        return ok("broker accounts", "agents are told no broker: they work by polling")
    try:
        wanted, there = wanted_accounts(), nodes_with_accounts()
        is_open = not settings.NODE_BROKER_URL.startswith("unix:") and is_open_to_all()
    except NoAccounts as error:
        message = (
            f"the broker lets the portal make none ({error}): all agents share one password, and each of them can "
        )
        message += "read, forge and empty what is there"
        fix = "Let the portal's account use ACL (Redis 6 or newer), or empty BACKENDAI_NODE_BROKER_URL: then agents "
        return warning("broker accounts", message, f"{fix}work by polling.")
    except BrokerAway as error:
        return warning("broker accounts", f"cannot be seen: {error}", "See the broker above.")
    if is_open:
        message = "the broker asks nobody for a password: accounts keep nobody from anything"
        return warning(
            "broker accounts", message, "Give its default user a password (requirepass) and name it in REDIS_URL."
        )
    if missing := sorted(node for node, digest in wanted.items() if there.get(node) != digest):
        said = f"{len(missing)} of {len(wanted)} are missing: {', '.join(missing[:5])}"
        return warning("broker accounts", said, "Wait for the repair pass (30 s), or: manage.py broker_accounts")
    return ok("broker accounts", f"{len(wanted)} of {Agent.objects.registered().count()} agents have their own")


def other_portals() -> Check:
    """Check that no second portal uses the same deployment name and broker, as each would undo the other's changes."""
    if has_other_portal():
        message = (
            f"another portal with the deployment name {settings.DEPLOYMENT} uses the same broker: each takes away "
        )
        message += "the other's broker accounts, and both send mails"
        fix = "Stop one of the two, or give the copy a REDIS_URL and a BACKENDAI_DEPLOYMENT of its own."
        return problem("other portals", message, fix)
    return ok("other portals", "none was seen at the broker")


def images() -> Check:
    """Check that at least one enabled image can start on an agent."""
    wanted = set(Image.objects.filter(is_enabled=True).values_list("reference", "process_reference"))
    there = set(ImageOnAgent.objects.values_list("reference", flat=True).distinct())
    startable = [pair for pair in wanted if there & {reference for reference in pair if reference}]
    if not startable:
        fix = "Wait until ./bin/up has built the images (the page Images says how far), or: manage.py build_images"
        return warning("images", f"none of {len(wanted)} images is on any agent yet", fix)
    return ok("images", f"{len(startable)} of {len(wanted)} images can start")


def scheduler(last: datetime | None, now: datetime) -> Check:
    """Check that the scheduler has finished a pass recently."""
    if last is None:
        return warning("scheduler", "has never looked at this database", f"Start the control worker ({_START}).")
    age = now - last
    if age > _STALE:
        message = f"looked last {int(age.total_seconds())} s ago"
        return warning("scheduler", message, f"Start the control worker ({_START}), or see its log.")
    return ok("scheduler", f"looked {age.total_seconds():.0f} s ago")


def debug_mode() -> Check:
    """Check that debug mode is off, as its error pages show internals to everybody."""
    if settings.DEBUG:
        return warning("debug", "BACKENDAI_DEBUG is on: errors show code and settings", "Unset BACKENDAI_DEBUG.")
    return ok("debug", "off")


def _database_kind() -> Check:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT sqlite_version()")
            version = cursor.fetchone()[0]
            cursor.execute("PRAGMA journal_mode")
            mode = str(cursor.fetchone()[0])
            said = f"SQLite {version}, journal {mode}, {Path(connection.settings_dict['NAME'])}"
            if mode != "wal":
                fix = "Keep the data folder on a local disk: network file systems cannot do WAL."
                return problem("database", f"{said}: readers and writers block each other", fix)
            return ok("database", said)
        cursor.execute("SHOW server_version")
        return ok("database", f"PostgreSQL {cursor.fetchone()[0]}")


def _migrations() -> Check:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        return problem("tables", f"{len(missing)} migrations are missing", "manage.py prepare")
    return ok("tables", "are up to date")


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]
