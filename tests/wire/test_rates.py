"""Rate limits, counted in a real server."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import redis
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire import rates
from backendai.base.wire.rates import Rate, take
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.cluster.models import Agent, SlotType
from backendai.ops.run.valkey import find_server
from backendai.portal.agents.views import SYNCS_AT_ONCE
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.api.test_key_pairs import signed
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[Path]:
    address = tmp_path_factory.mktemp("v") / "valkey.sock"
    words = [
        str(find_server()),
        "--port",
        "0",
        "--unixsocket",
        str(address),
        "--save",
        "",
        "--dir",
        str(address.parent),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "ready to accept" in line.lower():
                break
        yield address
        process.terminate()


@pytest.fixture
def counted(server: Path, settings: Any, monkeypatch: Any) -> Iterator[redis.Redis]:
    """The empty server. The clock stands still, and an answer that a busy machine gives late counts."""
    settings.REDIS_URL = f"unix://{server}"
    monkeypatch.setitem(rates._resting, "until", 0.0)
    monkeypatch.setattr(rates, "_PATIENCE_SECONDS", 60.0)
    rates._script.cache_clear()
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.flushall()
    moment = timezone.now()
    with mock.patch("django.utils.timezone.now", return_value=moment):
        yield client
    rates._script.cache_clear()


def test_it_lets_a_burst_through_and_then_an_even_stream(counted: redis.Redis) -> None:
    rate = [Rate("launch:a", 30, 60.0, 10)]
    assert [take(rate, now=1000.0) for _ in range(10)] == [0.0] * 10
    assert take(rate, now=1000.0) == pytest.approx(2.0, abs=1e-5)
    assert take(rate, now=1001.0) == pytest.approx(1.0, abs=1e-5), "a refusal costs nothing"
    assert take(rate, now=1002.0) == 0.0
    assert take(rate, now=1002.0) > 0
    assert take([Rate("launch:b", 30, 60.0, 10)], now=1002.0) == 0.0, "others are not held up"
    assert [take(rate, now=2000.0) for _ in range(11)].count(0.0) == 10
    assert all(counted.pttl(key) > 0 for key in counted.scan_iter()), "nothing stays for ever"


def test_many_at_once_cost_as_much_as_one_after_the_other(counted: redis.Redis) -> None:
    def ask(cost: int, now: float) -> float:
        return take([Rate("launch:a", 30, 60.0, 10, cost)], now=now)

    assert (ask(8, 1000.0), ask(2, 1000.0)) == (0.0, 0.0)
    assert ask(3, 1000.0) == pytest.approx(6.0, abs=1e-5)
    assert ask(3, 1006.0) == 0.0
    assert ask(16, 2000.0) == 0.0, "more than come at once need a full bucket"
    assert ask(1, 2000.0) == pytest.approx(14.0, abs=1e-5), "and are owed"
    assert ask(16, 2020.0) == pytest.approx(12.0, abs=1e-5)


def test_it_takes_from_all_buckets_or_from_none_in_one_round_trip(counted: redis.Redis) -> None:
    wide, narrow, none = Rate("w", 100, 1.0, 100), Rate("n", 1, 60.0, 1), Rate("o", 0, 60.0, 0)
    assert take([wide, narrow, none], now=1.0) == 0.0
    level = counted.get(_key(counted, "w"))
    before = counted.info("stats")["total_commands_processed"]
    assert take([wide, narrow], now=1.0) > 59
    assert counted.info("stats")["total_commands_processed"] - before <= 4, (
        "the script, its two reads, and this question"
    )
    assert counted.get(_key(counted, "w")) == level
    assert take([none], now=1.0) == 0.0


def test_it_lets_everybody_through_without_the_server_and_asks_it_seldom(
    settings: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/absent.sock"
    monkeypatch.setitem(rates._resting, "until", 0.0)
    rate = [Rate("x", 1, 60.0, 1)]
    assert [take(rate, now=1.0) for _ in range(3)] == [0.0] * 3
    assert rates._resting["until"] > 0


@pytest.mark.django_db
def test_the_api_answers_429_and_when_to_come_back(counted: redis.Redis, cast: Cast, settings: Any) -> None:
    settings.RATE_API, settings.RATE_LAUNCH, settings.RATE_LAUNCH_BURST = 6, 60, 2
    make_group()
    make_image()
    alice = Caller(cast.alice)
    made = [alice.post(SESSIONS, LAUNCH | {"name": f"run-{n}"}) for n in range(3)]
    assert [answer.status_code for answer in made] == [201, 201, 429]
    assert made[2]["Content-Type"] == "application/problem+json"
    assert (made[2].json()["code"], made[2]["Retry-After"]) == ("rate-limited", "1")
    assert [alice.get(SESSIONS).status_code for _ in range(5)] == [200] * 4 + [429]
    assert alice.get(SESSIONS)["Retry-After"] == "10"
    assert Caller(cast.bob).get(SESSIONS).status_code == 200
    admin = Caller(cast.dana)
    assert {admin.get(SESSIONS).status_code for _ in range(8)} == {200}


@pytest.mark.django_db
def test_a_node_that_syncs_too_often_is_refused_and_the_others_are_not(counted: redis.Redis) -> None:
    agents = {name: make_agent(name) for name in ("quick", "calm")}
    headers = {name: {"Authorization": f"Node {name}"} for name in agents}
    for name, agent in agents.items():
        Agent.objects.filter(pk=agent.pk).update(token_digest=hashlib.sha256(name.encode()).hexdigest())
    up = {"boot_id": "b", "version": "1", "backend": "docker", "architecture": "x86_64", "gateway_url": ""}
    told = {"data": up | {"capacity": {"cpu": "1"}}, "content_type": "application/json"}

    def sync(name: str) -> int:
        return Client().post("/node/v1/sync", **told, headers=headers[name]).status_code

    said = [sync("quick")]
    said += [sync("quick") for _ in range(SYNCS_AT_ONCE)]
    assert said == [200] * SYNCS_AT_ONCE + [429]
    assert sync("calm") == 200


@pytest.mark.django_db
def test_a_message_with_too_much_is_answered_with_422(counted: redis.Redis) -> None:
    agent = make_agent("loud")
    Agent.objects.filter(pk=agent.pk).update(token_digest=hashlib.sha256(b"loud").hexdigest())
    up = {"boot_id": "b", "version": "1", "backend": "docker", "architecture": "x86_64", "gateway_url": ""}
    for capacity, status in (({f"e{n}.device": "1" for n in range(33)}, 422), ({"cpu": "many"}, 400)):
        answer = Client().post(
            "/node/v1/sync",
            up | {"capacity": capacity},
            content_type="application/json",
            headers={"Authorization": "Node loud"},
        )
        assert (answer.status_code, answer.json()["code"]) == (status, "invalid-message")
    assert not SlotType.objects.filter(name__startswith="e").exists()


@pytest.mark.django_db
def test_pages_are_limited_for_each_account_and_for_addresses_without_a_login(
    counted: redis.Redis, cast: Cast, settings: Any
) -> None:
    settings.RATE_PAGES = 6

    def browser(user: User | None, address: str) -> Client:
        client = Client(REMOTE_ADDR=address)
        if user:
            client.force_login(user)
        return client

    alice, bob = browser(cast.alice, "192.0.2.1"), browser(cast.bob, "192.0.2.1")
    answers = [alice.get("/account/") for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 6 + [429]
    assert (answers[-1]["Retry-After"], answers[-1].content) == ("10", b"Too many requests. Try again in 10 s.")
    assert alice.get("/api/v1/me/").status_code == alice.get("/healthz").status_code == 200
    assert bob.get("/account/").status_code == 200
    stranger = browser(None, "192.0.2.1")
    assert [stranger.get("/login/").status_code for _ in range(7)] == [200] * 6 + [429]
    assert browser(None, "192.0.2.2").get("/login/").status_code == 200
    assert {browser(cast.dana, "192.0.2.1").get("/account/").status_code for _ in range(8)} == {200}


@pytest.mark.django_db
def test_a_key_pair_has_a_limit_of_its_own_and_the_launch_form_counts_too(
    counted: redis.Redis, cast: Cast, settings: Any
) -> None:
    settings.RATE_LAUNCH, settings.RATE_LAUNCH_BURST = 1, 1
    pair, secret = create_key_pair(cast.dana, "loop")
    pair.rate_limit = 2
    pair.save()
    answers = [signed(pair, secret, "GET", SESSIONS) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2]["Retry-After"] == "450"
    make_agent()
    make_image()
    browser = Client()
    browser.force_login(cast.alice)
    fields = {
        "image": "python",
        "session_type": "interactive",
        "project": str(cast.project.pk),
        "cpu": "1",
        "mem": "1g",
    }
    fields |= {"resource_group": "default", "preset": "", "name": ""}
    posts = [browser.post(reverse("web:launch"), fields) for _ in range(2)]
    assert [post.status_code for post in posts] == [302, 422]
    assert "Too many requests. Try again in 60 s." in posts[1].content.decode()


def _key(client: redis.Redis, name: str) -> bytes:
    return next(key for key in client.scan_iter() if key.endswith(f":{name}".encode()))


@pytest.mark.django_db
def test_the_launch_form_counts_sessions(counted: redis.Redis, cast: Cast, settings: Any) -> None:
    settings.RATE_LAUNCH, settings.RATE_LAUNCH_BURST = 1, 10
    make_agent()
    make_image()
    browser = Client()
    browser.force_login(cast.alice)
    fields = {"image": "python", "session_type": "interactive", "project": str(cast.project.pk), "cpu": "1"}
    fields |= {"mem": "1g", "resource_group": "default", "preset": "", "name": "", "count": "6"}
    posts = [browser.post(reverse("web:launch"), fields) for _ in range(2)]
    assert [post.status_code for post in posts] == [302, 422]
    assert cast.alice.compute_sessions.count() == 6
    assert "Too many requests." in posts[1].content.decode()
