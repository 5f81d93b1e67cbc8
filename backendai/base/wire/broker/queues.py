"""Names of queues, and conversions of broker addresses, for portal and agents."""

from __future__ import annotations

from urllib.parse import quote

CONTROL_QUEUE = "control"


def node_queue(agent_name: str) -> str:
    """Return the name of the queue that only this agent's worker consumes."""
    return f"node.{agent_name}"


def broker_address(redis_url: str) -> str:
    """Return the address in Celery's form: ``unix:///path?db=0`` becomes ``redis+socket:///path``."""
    return redis_url.replace("unix://", "redis+socket://", 1)


def with_account(redis_url: str, username: str, password: str) -> str:
    """Return the address with this account instead of its own."""
    return _join(redis_url, f"{quote(username, safe='')}:{quote(password, safe='')}")


def with_account_of(redis_url: str, other: str) -> str:
    """Return the address with the account of the address ``other``; unchanged if ``other`` has none."""
    account = account_in(other)
    return _join(redis_url, account) if account else redis_url


def account_in(redis_url: str) -> str:
    """Return ``user:password`` of the address; "" if it has no account."""
    place = redis_url.partition("://")[2].partition("/")[0]
    return place.rpartition("@")[0]


def without_account(redis_url: str) -> str:
    """Return the address without its account."""
    return _join(redis_url, "")


def _join(redis_url: str, account: str) -> str:
    scheme, separator, rest = redis_url.partition("://")
    place, slash, path = rest.partition("/")
    host = place.rpartition("@")[2]
    return f"{scheme}{separator}{account}@{host}{slash}{path}" if account else f"{scheme}{separator}{host}{slash}{path}"
