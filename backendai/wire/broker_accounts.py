"""The nodes' accounts at the broker: each may take hints from its own queue, and nothing else.

An account writes nothing, so a node can neither forge what others read nor fill the server. Only the hash of its
password is known here; the node made the password itself.
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

from backendai.wire.queues import node_queue

_TIMEOUT_SECONDS = 2.0
# What a worker needs that only takes from one list: it looks how long that is, in a transaction, and waits for more.
_COMMANDS = ("+ping", "+select", "+multi", "+exec", "+llen", "+brpop")
_GRANTS = ("~", "%", "&", "+", "(", "allkeys", "allchannels", "allcommands", "nopass")


class NoAccounts(Exception):
    """The broker answers, and does not let the portal make accounts; the message says why."""


class BrokerAway(Exception):
    """The broker gives no answer; the message says what happened."""


class Settled(NamedTuple):
    """Names of the nodes whose accounts were made or put right, and of those whose accounts were taken away."""

    made: list[str]
    dropped: list[str]


def account_name(node: str) -> str:
    """Return the name under which this node signs in at the broker. Platforms that share a broker keep apart."""
    return _prefix() + node


def settle_accounts(ask_wanted: Callable[[], Mapping[str, str]]) -> Settled:
    """Make the accounts of this platform's nodes what is wanted (node → hash of the password), no more, no fewer.
    Raises NoAccounts and BrokerAway.

    It is asked after looking: an account that is made meanwhile must not be taken for one that nobody wants.
    """
    with _broker() as redis:
        there = _accounts(redis)
        wanted = ask_wanted()
        made = [node for node, digest in wanted.items() if not _is_right(there.get(node), node, digest)]
        dropped = [node for node in there if node not in wanted]
        _change(redis, {node: wanted[node] for node in made}, [node for node in there if node in made] + dropped)
        return Settled(sorted(made), sorted(dropped))


def make_account(node: str, digest: str) -> bool:
    """Make this node's account, or put it right; whoever used another password is thrown out. Returns whether it was
    not right before. Raises NoAccounts and BrokerAway."""
    with _broker() as redis:
        there = _accounts(redis)
        if _is_right(there.get(node), node, digest):
            return False
        _change(redis, {node: digest}, [node] if node in there else [])
        return True


def drop_accounts(nodes: Collection[str]) -> None:
    """Take these nodes' accounts away; their connections are cut. Raises NoAccounts and BrokerAway."""
    with _broker() as redis:
        _change(redis, {}, nodes)


def nodes_with_accounts() -> dict[str, str]:
    """Return the hash of the password by node for every account that is as it should be.
    Raises NoAccounts and BrokerAway."""
    with _broker() as redis:
        found = {node: (words, _digest(words)) for node, words in _accounts(redis).items()}
        return {node: digest for node, (words, digest) in found.items() if _is_right(words, node, digest)}


def is_open_to_all() -> bool:
    """Return whether the broker asks nobody for a password: then accounts keep nobody from anything.
    Raises NoAccounts and BrokerAway."""
    with _broker() as redis:
        default = next((words for words in _all_accounts(redis) if words[1] == "default"), [])
        return "nopass" in default and "on" in default


def trim_queues(nodes: Collection[str], *, longest: int) -> None:
    """Drop all but the newest ``longest`` hints for each of these nodes: nobody takes those of a node that is off, or
    works by sync alone. Raises BrokerAway."""
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
    except AuthenticationError as error:  # the portal's own password
        raise BrokerAway(str(error)) from error
    except ResponseError as error:
        raise NoAccounts(str(error)) from error
    except (RedisError, OSError) as error:
        raise BrokerAway(str(error)) from error
    finally:
        redis.close()


def _accounts(redis: Redis) -> dict[str, list[str]]:
    """Return the words of each account of ours by node."""
    prefix = _prefix()
    ours = (words for words in _all_accounts(redis) if words[1].startswith(prefix))
    return {words[1].removeprefix(prefix): words[2:] for words in ours}


def _all_accounts(redis: Redis) -> list[list[str]]:
    """Return each account as words: "user", its name, and what it may."""
    return [str(line).split() for line in redis.acl_list()]


def _is_right(words: list[str] | None, node: str, digest: str) -> bool:
    if words is None or "on" not in words or _digest(words) != digest:
        return False
    granted = {word for word in words if word.startswith(_GRANTS)}
    return granted == {f"~{node_queue(node)}", *_COMMANDS}


def _digest(words: list[str]) -> str:
    digests = [word[1:] for word in words if word.startswith("#")]
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
    # Without a file for them at the broker this is refused, and after its restart the repair pass makes them anew.
    with suppress(ResponseError):
        redis.acl_save()
