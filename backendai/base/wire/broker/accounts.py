"""Manages accounts of agents at the broker. An account can read only its own agent's queue, and write nothing.

The agent creates the password; the portal knows only its hash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import quote

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.retry import Retry

from backendai.base.wire.broker.queues import node_queue

_TIMEOUT_SECONDS = 2.0
# A Celery worker with one queue needs only these: it reads the queue's length in a transaction and waits for hints.
_COMMANDS = ("+ping", "+select", "+multi", "+exec", "+llen", "+brpop")
_GRANTS = ("~", "%", "&", "+", "(", "allkeys", "allchannels", "allcommands", "nopass")


class NoAccounts(Exception):
    """The broker does not let the portal manage accounts; the message contains the cause."""


class BrokerAway(Exception):
    """The broker is unreachable; the message contains the cause."""


class Settled(NamedTuple):
    """The names of the agents whose accounts were created or corrected (``made``), or deleted (``dropped``)."""

    made: list[str]
    dropped: list[str]


def account_name(node: str) -> str:
    """Return the agent's user name at the broker, which includes the deployment name."""
    return _prefix() + node


def settle_accounts(ask_wanted: Callable[[], Mapping[str, str]]) -> Settled:
    """Create, correct and delete accounts of this deployment until they match ``ask_wanted()``, the password hash of
    each agent. Connections of corrected and deleted accounts are closed. Raises NoAccounts and BrokerAway.

    ``ask_wanted`` is called after the accounts are listed; otherwise an account created in between would be deleted.
    """
    with _broker() as redis:
        there = _accounts(redis)
        wanted = ask_wanted()
        made = [node for node, digest in wanted.items() if not _is_right(there.get(node), node, digest)]
        dropped = [node for node in there if node not in wanted]
        _change(redis, {node: wanted[node] for node in made}, [node for node in there if node in made] + dropped)
        return Settled(sorted(made), sorted(dropped))


def make_account(node: str, digest: str) -> bool:
    """Create or correct an agent's account; returns whether it changed. Connections of a corrected account are closed.
    Raises NoAccounts and BrokerAway."""
    with _broker() as redis:
        there = _accounts(redis)
        if _is_right(there.get(node), node, digest):
            return False
        _change(redis, {node: digest}, [node] if node in there else [])
        return True


def drop_accounts(nodes: Collection[str]) -> None:
    """Delete the accounts of these agents and close their connections. Raises NoAccounts and BrokerAway."""
    with _broker() as redis:
        _change(redis, {}, nodes)


def nodes_with_accounts() -> dict[str, str]:
    """Return the password hash of each agent's account, by agent. Accounts with wrong permissions are left out. Raises
    NoAccounts and BrokerAway."""
    with _broker() as redis:
        found = {node: (rules, _digest(rules)) for node, rules in _accounts(redis).items()}
        return {node: digest for node, (rules, digest) in found.items() if _is_right(rules, node, digest)}


def is_open_to_all() -> bool:
    """Return whether the broker accepts connections without a password; accounts then protect nothing. Raises
    NoAccounts and BrokerAway."""
    with _broker() as redis:
        default = next((rules for rules in _all_accounts(redis) if rules[1] == "default"), [])
        return "nopass" in default and "on" in default


def trim_queues(nodes: Collection[str], *, longest: int) -> None:
    """Delete all but the newest ``longest`` hints of each agent's queue, as a stopped agent reads none. Raises
    NoAccounts and BrokerAway."""
    with _broker() as redis:
        pipe = redis.pipeline(transaction=False)
        for node in nodes:
            pipe.ltrim(node_queue(node), 0, longest - 1)
        pipe.execute()


def _prefix() -> str:
    return f"{quote(settings.DEPLOYMENT, safe='')}:node:"


@contextmanager
def _broker() -> Iterator[Redis]:
    redis = Redis.from_url(
        settings.REDIS_URL,
        decode_responses=True,
        socket_timeout=_TIMEOUT_SECONDS,
        socket_connect_timeout=_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        yield redis
    except AuthenticationError as error:  # the portal's own password is wrong
        raise BrokerAway(str(error)) from error
    except ResponseError as error:
        raise NoAccounts(str(error)) from error
    except (RedisError, OSError) as error:
        raise BrokerAway(str(error)) from error
    finally:
        redis.close()


def _accounts(redis: Redis) -> dict[str, list[str]]:
    """Return the permissions of this deployment's accounts by agent, as a list of Redis ACL rules."""
    prefix = _prefix()
    ours = (rules for rules in _all_accounts(redis) if rules[1].startswith(prefix))
    return {rules[1].removeprefix(prefix): rules[2:] for rules in ours}


def _all_accounts(redis: Redis) -> list[list[str]]:
    """Return each account as a list of Redis ACL rules: "user", its name and its permissions."""
    return [str(line).split() for line in redis.acl_list()]


def _is_right(rules: list[str] | None, node: str, digest: str) -> bool:
    if rules is None or "on" not in rules or _digest(rules) != digest:
        return False
    granted = {word for word in rules if word.startswith(_GRANTS)}
    return granted == {f"~{node_queue(node)}", *_COMMANDS}


def _digest(rules: list[str]) -> str:
    digests = [word[1:] for word in rules if word.startswith("#")]
    return digests[0] if len(digests) == 1 else ""


def _change(redis: Redis, made: Mapping[str, str], dropped: Collection[str]) -> None:
    if not made and not dropped:
        return
    pipe = redis.pipeline(transaction=True)
    if dropped:
        pipe.acl_deluser(*map(account_name, dropped))
    for node, digest in made.items():
        pipe.acl_setuser(
            account_name(node),
            enabled=True,
            hashed_passwords=f"+{digest}",
            keys=[node_queue(node)],
            reset_channels=True,
            commands=["-@all", *_COMMANDS],
            reset=True,
        )
    pipe.execute()
    # A broker without an ACL file refuses this. After its restart the repair pass creates the accounts again.
    with suppress(ResponseError):
        redis.acl_save()
