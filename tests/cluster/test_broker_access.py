"""Each node signs in at the broker as itself: it takes its own hints, and reads, writes and forges nothing else."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import ConnectionError as BrokenConnection

from backendai.base.core.errors import NotFound
from backendai.base.wire.broker.queues import with_account
from backendai.base.wire.messages import JoinUp
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.agents import revoke_credential
from backendai.domain.cluster.broker_access import end_broker_access, give_broker_access
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.services.life.retiring import retire_agent
from backendai.ops.doctor.portal import broker_accounts as examine
from backendai.portal.loops.repair.rounds import settle_accounts
from tests.brokers import PROGRAMS, OwnBroker, own_broker
from tests.cast import make_cast
from tests.factories import make_agent, make_group
from tests.patience import patient

pytestmark = pytest.mark.django_db
PASSWORD = "of-node-{}"


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: Path(program).name)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    with own_broker(tmp_path_factory.mktemp("broker"), request.param) as broker:
        yield broker


@pytest.fixture
def broker(server: OwnBroker, settings: Any) -> Iterator[Redis]:
    """The broker, empty, as the portal sees it."""
    settings.REDIS_URL = settings.NODE_BROKER_URL = server.url
    settings.DEPLOYMENT = "d 1"
    yield (redis := Redis.from_url(server.url, decode_responses=True))
    redis.flushall()
    others = [name for name in redis.acl_users() if name != "default"]
    if others:
        redis.acl_deluser(*others)


def digest_of(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def sign_in(agent: Agent) -> Redis:
    """Return the broker as this node sees it, once it has asked for its account."""
    down = give_broker_access(agent, digest_of(PASSWORD.format(agent.name)))
    return Redis.from_url(with_account(down.url, down.username, PASSWORD.format(agent.name)), decode_responses=True)


def accounts(broker: Redis) -> set[str]:
    return set(broker.acl_users()) - {"default"}


FORBIDDEN = [
    "LLEN node.b", "LRANGE node.b 0 -1", "BRPOP node.b 1", "BRPOP node.a node.b 1", "RPOP node.b", "LPUSH node.b x",
    "DEL node.b", "LLEN node.ab", "LLEN node.a\x06\x163", "LPUSH node.a x", "LRANGE node.a 0 -1", "DEL node.a",
    "BRPOP control 1", "LPUSH control x", "LLEN control", "LPUSH d1:events x", "PUBLISH d:events x",
    "SUBSCRIBE d:events", "PSUBSCRIBE *", "PUBLISH /0.celery.pidbox x", "SSUBSCRIBE x", "GET :1:cached",
    "SET :1:cached x", "GET celery-task-meta-1", "SMEMBERS _kombu.binding.node.b", "SADD _kombu.binding.node.a x",
    "SADD _kombu.binding.control x", "HGETALL unacked", "HSET unacked t x", "ZADD unacked_index 1 x",
    "SET unacked_mutex x", "KEYS *", "SCAN 0", "RANDOMKEY", "TYPE node.b", "EXISTS node.b", "DBSIZE", "DUMP node.b",
    "CONFIG GET *", "CONFIG SET maxmemory 1", "FLUSHALL", "FLUSHDB", "SHUTDOWN NOSAVE", "ACL LIST", "ACL WHOAMI",
    "ACL SETUSER d%201:node:a +@all", "EVAL return(1) 0", "EVAL_RO return(1) 0", "SCRIPT LOAD return(1)",
    "FUNCTION LIST", "MONITOR", "CLIENT LIST", "CLIENT KILL TYPE normal", "INFO", "SLOWLOG GET", "MODULE LIST",
    "REPLICAOF NO ONE", "MIGRATE h 1 node.b 0 1", "SAVE", "SWAPDB 0 1", "WAIT 0 1", "LATENCY LATEST", "COMMAND",
]  # fmt: skip


def test_a_node_reaches_its_own_queue_only_and_only_to_take_from_it(broker: Redis, server: OwnBroker) -> None:
    a, b = sign_in(make_agent("a")), sign_in(make_agent("b"))
    broker.lpush("node.a", "for a")
    broker.lpush("node.b", "for b")
    broker.set(":1:cached", "secret")
    for command in FORBIDDEN:
        with pytest.raises(NoPermissionError):
            a.execute_command(*command.split(" "))
    with pytest.raises(NoPermissionError):
        a.pipeline(transaction=True).llen("node.a").llen("node.b").execute()
    elsewhere = signed_in(server, "a", database=3)
    assert elsewhere.llen("node.a") == 0
    with pytest.raises(NoPermissionError):
        elsewhere.llen("node.b")

    assert (a.ping(), a.llen("node.a"), b.llen("node.b")) == (True, 1, 1)
    assert (a.brpop(["node.a"], 1), b.brpop(["node.b"], 1)) == (("node.a", "for a"), ("node.b", "for b"))
    rules = next(line for line in broker.acl_list() if line.startswith("user d%201:node:a "))
    granted = {word for word in rules.split()[2:] if word[0] in "~&%+("}
    assert granted == {"~node.a", "+ping", "+select", "+multi", "+exec", "+llen", "+brpop"}


def test_the_portal_knows_the_hash_of_its_password_only(broker: Redis, server: OwnBroker) -> None:
    a, b = make_agent("a"), make_agent("b")
    sign_in(a)
    sign_in(b)
    with pytest.raises(AuthenticationError):
        signed_in(server, "a", password=PASSWORD.format("b")).ping()
    a.refresh_from_db()
    assert a.broker_digest == digest_of(PASSWORD.format("a"))
    assert list(AuditEntry.objects.order_by("pk").values_list("action", "details__name")) == [
        ("agent.broker-account", "a"),
        ("agent.broker-account", "b"),
    ]


def test_it_asks_by_its_own_token_as_often_as_it_likes(broker: Redis, server: OwnBroker) -> None:
    _, token = join_agent(JoinUp(token=create_join_token(make_group()), name="a", gateway_url=""))

    def ask(body: Any, header: str = f"Node {token}") -> Any:
        return Client().post("/node/v1/broker", body, "application/json", headers={"Authorization": header})

    digest = digest_of(PASSWORD.format("a"))
    first = ask({"digest": digest})
    assert first.json() == {"url": server.url, "username": "d%201:node:a"}
    broker.acl_deluser("d%201:node:a")
    assert ask({"digest": digest}).json() == first.json()
    assert signed_in(server, "a").ping()
    assert AuditEntry.objects.filter(action="agent.broker-account").count() == 1
    assert [ask({"digest": digest}, header).status_code for header in ("", "Node x", f"Bearer {token}")] == [401] * 3
    for wrong in ("", "0" * 63, "Z" * 64, f"{digest} on nopass"):
        assert ask({"digest": wrong}).status_code == 400
    assert ask({"digest": digest, "node": "b"}).json() == first.json(), "its token says who it is, and nothing else"


def test_a_node_that_joins_anew_loses_the_account_of_before_at_once(
    broker: Redis, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    token = create_join_token(make_group(), name_prefix="a", reusable=True)
    agent, _ = join_agent(JoinUp(token=token, name="a", gateway_url=""))
    before = sign_in(agent)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            before.brpop(["node.a"], 30)
        except BrokenConnection as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not any(client["cmd"] == "brpop" for client in broker.client_list()):
        pass
    with django_capture_on_commit_callbacks(execute=True):
        join_agent(JoinUp(token=token, name="a", gateway_url=""))
    waiting.join(patient(10))
    assert len(ended) == 1
    assert accounts(broker) == set()
    with pytest.raises(NotFound):
        give_broker_access(agent, digest_of("late"))  # its token is not good any more
    assert accounts(broker) == set()


def test_who_is_turned_away_or_given_up_is_let_in_no_more(
    broker: Redis, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    admin = make_cast().dana
    a, b = make_agent("a"), make_agent("b")
    nodes = sign_in(a), sign_in(b)
    with django_capture_on_commit_callbacks(execute=True):
        revoke_credential(admin, a, now=timezone.now())
        retire_agent(admin, b, now=timezone.now())
    assert accounts(broker) == set()
    for node in nodes:
        with pytest.raises(AuthenticationError):
            node.ping()
    assert settle_accounts(timezone.now()) == 0


def test_an_end_that_is_rolled_back_takes_nothing_away(broker: Redis) -> None:
    agent = make_agent("a")
    node = sign_in(agent)
    with pytest.raises(RuntimeError), transaction.atomic():
        end_broker_access([agent])
        raise RuntimeError
    assert node.ping()
    agent.refresh_from_db()
    assert agent.broker_digest


def test_the_repair_pass_makes_accounts_what_the_database_says(
    broker: Redis, server: OwnBroker, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c", "gone"):
        sign_in(make_agent(name))
    make_agent("quiet")
    Agent.objects.filter(name="gone").update(status=Agent.Status.TERMINATED)
    broker.acl_deluser("d%201:node:a")
    broker.execute_command("ACL", "SETUSER", "d%201:node:b", "~*", "+@all")
    for other in ("d:node:a", "d%201:node:stranger", "somebody"):
        broker.execute_command("ACL", "SETUSER", other, "on", "nopass")
    for queue in ("node.a", "node.quiet", "control"):
        broker.lpush(queue, *range(150))
    with pytest.raises(CommandError, match="2 accounts are missing: a, b"):
        call_command("broker_accounts", "--check")
    assert examine().level == "warning"

    assert settle_accounts(timezone.now()) == 4
    assert accounts(broker) == {"d%201:node:a", "d%201:node:b", "d%201:node:c", "d:node:a", "somebody"}
    with pytest.raises(NoPermissionError):
        signed_in(server, "b").keys("*")
    assert [broker.llen(queue) for queue in ("node.a", "node.quiet", "control")] == [100, 100, 150]
    assert broker.lindex("node.a", 0) == "149"  # the newest stay
    assert settle_accounts(timezone.now()) == 0
    capsys.readouterr()
    call_command("broker_accounts")
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in said] == [
        ["a", "d%201:node:a"], ["b", "d%201:node:b"], ["c", "d%201:node:c"], ["quiet", "has"],
    ]  # fmt: skip
    assert (examine().level, examine().message) == ("ok", "3 of 4 agents have their own")


def test_a_broker_that_is_away_gets_the_account_later(broker: Redis, server: OwnBroker, settings: Any) -> None:
    settings.REDIS_URL = "unix:///nowhere.sock"
    node = sign_in(make_agent("a"))
    assert settle_accounts(timezone.now()) == 0
    assert "cannot be seen" in examine().message
    with pytest.raises(CommandError, match="does not answer"):
        call_command("broker_accounts")
    settings.REDIS_URL = server.url
    assert settle_accounts(timezone.now()) == 1
    assert node.ping()


def test_where_the_broker_lets_it_make_none_all_share_the_address_and_doctor_says_so(
    broker: Redis, server: OwnBroker, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker.execute_command("ACL", "SETUSER", "managed", "on", ">secret", "~*", "&*", "+@all", "-acl")
    settings.REDIS_URL = settings.NODE_BROKER_URL = with_account(server.url, "managed", "secret")
    down = give_broker_access(make_agent("a"), digest_of("x"))
    assert (down.url, down.username) == (settings.NODE_BROKER_URL, "")
    assert settle_accounts(timezone.now()) == 0
    found = examine()
    assert found.level == "warning"
    assert "all agents share one password" in found.message
    assert "secret" not in found.message + found.fix + caplog.text
    with pytest.raises(CommandError, match="lets the portal make no accounts"):
        call_command("broker_accounts")


def test_without_an_address_for_nodes_there_are_no_accounts(broker: Redis, settings: Any) -> None:
    settings.NODE_BROKER_URL = ""
    down = give_broker_access(make_agent("a"), digest_of("x"))
    assert (down.url, down.username, accounts(broker)) == ("", "", set())
    assert examine().level == "ok"


def test_doctor_says_when_the_broker_asks_nobody_for_a_password(broker: Redis, settings: Any) -> None:
    settings.NODE_BROKER_URL = "redis://broker.example.org:6379/0"
    assert "asks nobody for a password" in examine().message


def signed_in(server: OwnBroker, node: str, *, password: str = "", database: int = 0) -> Redis:
    """Return the broker as the node sees it that has its account already."""
    url = with_account(server.url, f"d%201:node:{node}", password or PASSWORD.format(node))
    return Redis.from_url(f"{url}?db={database}", decode_responses=True)
