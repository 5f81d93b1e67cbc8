"""Scaling rules that ask a Prometheus server."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from backendai.base.core.errors import UserError
from backendai.domain.serving.models import AutoScalingRule
from backendai.domain.serving.prometheus import NoValue, value_of
from backendai.domain.serving.services.endpoints import set_rules
from backendai.ops.checks import check_addresses
from backendai.portal.loops.loops import read_metrics
from tests.cast import Cast
from tests.effort import some
from tests.pages import markup
from tests.serving.world import World, codes_of, make_endpoint

pytestmark = pytest.mark.django_db


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {}, "value": [1.0, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


class Server:
    """Answers queries as Prometheus does: ``answers`` by query, with their status."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        told = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)["query"][0]
                told.asked.append(query)
                status, said = told.answers.get(query, (200, vector()))
                body = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused: object) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    found = Server()
    settings.PROMETHEUS_URL = found.url
    yield found
    found.http.shutdown()
    found.http.server_close()


@some(
    ("status", "said", "words"),
    [
        (200, vector(), "no value now"),
        (200, vector("NaN"), "no value now"),
        (200, vector("1", "2"), "2 values"),
        (200, {"data": {"resultType": "matrix", "result": [{"values": []}]}}, "not that of Prometheus"),
        (200, b"<html>", "not that of Prometheus"),
        (200, b"[" * 60_000, "not that of Prometheus"),
        (200, b" " * 100_000, "too many values"),
        (400, {"error": "parse error: \x1b[31m unclosed"}, "refuses the query: parse error: [31m unclosed"),
        (503, b"", "status 503"),
    ],
    2,
)
def test_a_query_without_one_number_says_why(server: Server, status: int, said: Any, words: str) -> None:
    server.answers["up"] = status, said
    with pytest.raises(NoValue) as refused:
        value_of(server.url, "up")
    assert words in str(refused.value.message)


def test_a_vector_of_one_and_a_scalar_are_numbers(server: Server) -> None:
    server.answers["one"] = 200, vector("2.5")
    server.answers["two"] = 200, {"data": {"resultType": "scalar", "result": [1.0, "7"]}}
    assert (value_of(server.url, "one"), value_of(server.url, "two")) == (2.5, 7.0)


def test_a_server_that_is_not_there_is_said(server: Server) -> None:
    with pytest.raises(NoValue) as refused:
        value_of("http://127.0.0.1:9", "up")
    assert "does not answer" in str(refused.value.message)


def test_a_rule_raises_by_its_value_and_holds_without_one(
    cast: Cast, server: Server, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    world = World(cast.alice)
    endpoint = make_endpoint(cast.alice, minimum=1, maximum=4)
    query = 'sum(queue{endpoint="$endpoint", project="$project"})'
    set_rules(endpoint, cast.dana, [AutoScalingRule(metric="prometheus", query=query, up_over=5, down_under=1)])
    world.until(lambda: endpoint.replicas.filter(state="ready").count() == 1)
    world.now += timedelta(minutes=6)  # rules wait for five minutes after a change
    world.steps()
    asked = f'sum(queue{{endpoint="chat", project="{endpoint.project.name}"}})'
    server.answers[asked] = 200, vector("9")
    with django_assert_num_queries(11):
        assert read_metrics(world.now) == 1
    assert server.asked == [asked]
    world.until(lambda: endpoint.replicas.filter(state="ready").count() == 2)
    assert "rule" in codes_of()
    world.now += timedelta(minutes=10)  # its value is too old to act on
    world.steps(20)
    assert endpoint.replicas.filter(state="ready").count() == 2
    server.answers[asked] = 503, b""
    read_metrics(world.now)
    rule = endpoint.rules.get()
    assert rule.value is None and "503" in str(rule.trouble)


def test_a_query_is_written_by_a_superadmin_and_kept_by_its_owner(cast: Cast, server: Server) -> None:
    endpoint = make_endpoint(cast.alice)
    rule = {"metric": "prometheus", "query": "up", "up_over": 5}
    with pytest.raises(UserError) as refused:
        set_rules(endpoint, cast.alice, [AutoScalingRule(**rule)])
    assert (refused.value.field, refused.value.code) == ("query", "query-needs-superadmin")
    set_rules(endpoint, cast.dana, [AutoScalingRule(**rule)])
    set_rules(endpoint, cast.alice, [AutoScalingRule(**rule | {"up_over": 7})])
    assert endpoint.rules.get().up_over == 7
    browser = Client()
    for user, offers in ((cast.alice, False), (cast.dana, True)):
        browser.force_login(user)
        assert ("id_query" in markup(browser.get(f"/endpoints/{endpoint.pk}/"))) is offers


def test_rules_are_refused_that_cannot_be_asked(cast: Cast, server: Server, settings: Any) -> None:
    endpoint = make_endpoint(cast.alice)
    for over in ({"query": ""}, {"query": "a\nb"}, {"query": "x" * 1001}, {"metric": "rate", "query": "up"}):
        with pytest.raises(UserError) as refused:
            set_rules(endpoint, cast.dana, [AutoScalingRule(**{"metric": "prometheus", "up_over": 1, **over})])
        assert refused.value.field == "query"
    settings.PROMETHEUS_URL = ""
    with pytest.raises(UserError) as refused:
        set_rules(endpoint, cast.dana, [AutoScalingRule(metric="prometheus", query="up", up_over=1)])
    assert "BACKENDAI_PROMETHEUS_URL" in str(refused.value) and read_metrics(endpoint.created_at) == 0
    settings.PROMETHEUS_URL = "prometheus:9090"
    assert [found.id for found in check_addresses()] == ["portal.E033"]


def test_page_and_rest_write_and_show_it(cast: Cast, client: Client, server: Server, settings: Any) -> None:
    endpoint = make_endpoint(cast.alice)
    client.force_login(cast.dana)
    form = {"metric": "prometheus", "query": "sum(up)", "up_over": "3", "step": "1"}
    assert client.post(f"/endpoints/{endpoint.pk}/rules/", form).status_code == 302
    assert "not asked yet" in markup(client.get(f"/endpoints/{endpoint.pk}/"))
    server.answers["sum(up)"] = 200, vector("12.5")
    read_metrics(endpoint.created_at)
    assert "now 12.5" in markup(client.get(f"/endpoints/{endpoint.pk}/"))
    told = client.get(f"/api/v1/endpoints/{endpoint.pk}/rules/").json()["results"]
    rule = told[0]
    assert (rule["query"], rule["value"], rule["trouble"]) == ("sum(up)", 12.5, "")
    settings.PROMETHEUS_URL = ""
    assert "Value of a Prometheus query</option>" not in markup(client.get(f"/endpoints/{endpoint.pk}/"))
