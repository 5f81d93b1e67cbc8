"""Reading a kernel's output over REST: from the node while it is there, as it was kept afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.base.wire.tickets import public_key_of, read_ticket
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.records.logs import save_log
from tests.api.callers import SESSIONS, Caller, log_gateway
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session, report_of

pytestmark = pytest.mark.django_db


def ended_session(cast: Cast, content: bytes, *, truncated: bool = False) -> ComputeSession:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    kernel = session.kernels.get()
    save_log(agent, kernel.pk, kernel.generation, content, truncated=truncated)
    kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, exit_code=0))
    return session


def test_it_reads_the_log_of_a_running_kernel_from_its_node_with_a_ticket(cast: Cast) -> None:
    with log_gateway(200, b"one\ntwo \xff\n") as (address, seen):
        session = make_running_session(cast.alice, make_agent(gateway_url=address))
        kernel = session.kernels.get()
        answer = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/logs/", tail=5)
    assert (answer.status_code, answer.content) == (200, b"one\ntwo \xff\n")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Log-Truncated"] == "false"
    [(path, header)] = seen
    assert path == f"/kernels/{kernel.pk}/log?tail=5"
    public_key = public_key_of(settings.TICKET_KEY)
    ticket = read_ticket(public_key, header.removeprefix("Ticket "), purpose="log", now=timezone.now().timestamp())
    assert (ticket.kernel_id, ticket.generation) == (kernel.pk, kernel.generation)


def test_it_reads_what_an_app_has_written_while_the_session_runs(cast: Cast) -> None:
    with log_gateway(200, b"one\ntwo\n") as (address, seen):
        session = make_running_session(cast.alice, make_agent(gateway_url=address))
        kernel, alice, path = session.kernels.get(), Caller(cast.alice), f"{SESSIONS}{session.pk}/logs/"
        none = alice.get(path, app="jupyterlab")
        assert (none.status_code, none.json()["code"]) == (404, "no-log"), "its image has none"
        assert "No app of this session has output" in none.json()["detail"]
        Image.objects.filter(pk=session.image_id).update(services="jupyterlab:http:[8888]")
        assert alice.get(path, app="jupyterlab", tail=1).content == b"two\n"
        for stranger in ("other", "../x", "jupyterlab&follow=1"):
            refused = alice.get(path, app=stranger)
            assert (refused.status_code, refused.json()["code"]) == (404, "no-log")
            assert "Use one of: jupyterlab" in refused.json()["detail"]
        Agent.objects.filter(pk=kernel.agent_id).update(backend="process")
        assert alice.get(path, app="jupyterlab").status_code == 404
    assert [told for told, _ in seen] == [f"/kernels/{kernel.pk}/log?app=jupyterlab"]
    ended = ended_session(cast, b"its own")
    over = Caller(cast.alice).get(f"{SESSIONS}{ended.pk}/logs/", app="jupyterlab")
    assert over.status_code == 404 and "only while the session runs" in over.json()["detail"]


def test_it_reads_the_kept_log_of_a_kernel_that_ended(cast: Cast) -> None:
    session = ended_session(cast, b"one\ntwo\nthree\n", truncated=True)
    alice, path = Caller(cast.alice), f"{SESSIONS}{session.pk}/logs/"
    answer = alice.get(path)
    assert (answer.content, answer["X-Log-Truncated"]) == (b"one\ntwo\nthree\n", "true")
    assert alice.get(path, tail=2).content == b"two\nthree\n"
    assert alice.get(path, kernel=session.kernels.get().pk).content == b"one\ntwo\nthree\n"


def test_it_gives_text_whatever_a_browser_asks_for(cast: Cast) -> None:
    session = ended_session(cast, b"<script>alert(1)</script>")
    alice = Caller(cast.alice)
    for accept in ("text/plain", "*/*", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "application/json"):
        answer = alice._client.get(f"{SESSIONS}{session.pk}/logs/", headers={"Accept": accept})
        assert (answer.status_code, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")


def test_it_is_empty_before_the_start(cast: Cast) -> None:
    answer = Caller(cast.alice).get(f"{SESSIONS}{make_session(cast.alice).pk}/logs/")
    assert (answer.status_code, answer.content) == (200, b"")


def test_it_falls_back_to_the_kept_log_while_the_end_is_on_its_way(cast: Cast) -> None:
    with log_gateway(404, b"gone") as (address, _):
        agent = make_agent(gateway_url=address)
        session = make_running_session(cast.alice, agent)
        kernel = session.kernels.get()
        save_log(agent, kernel.pk, kernel.generation, b"kept", truncated=False)
        alice = Caller(cast.alice)
        alice.post(f"{SESSIONS}{session.pk}/terminate/")
        assert alice.get(f"{SESSIONS}{session.pk}/logs/").content == b"kept"


def test_it_says_when_the_output_was_not_kept(cast: Cast) -> None:
    session = ended_session(cast, b"")
    Kernel.objects.get(session=session).log.delete()
    Kernel.objects.filter(session=session).update(exit_code=None)
    answer = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/logs/")
    assert (answer.status_code, answer.json()["code"]) == (404, "no-log")


def test_the_log_of_a_program_that_printed_nothing_is_empty(cast: Cast) -> None:
    session = ended_session(cast, b"")
    Kernel.objects.get(session=session).log.delete()
    Kernel.objects.filter(session=session).update(exit_code=3)
    answer = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/logs/", tail=5)
    assert (answer.status_code, answer.content, answer["X-Log-Truncated"]) == (200, b"", "false")


def test_the_end_of_a_log_is_counted_in_newlines(cast: Cast) -> None:
    session = ended_session(cast, b"first\n1%\r2%\r3%\nlast\n")
    answer = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/logs/", tail=2)
    assert answer.content == b"1%\r2%\r3%\nlast\n"


@pytest.mark.parametrize("status", [0, 403, 503])
def test_it_answers_503_when_the_node_gives_no_answer(cast: Cast, status: int) -> None:
    with log_gateway(status or 200, b"secret of the node") as (address, _):
        url = address if status else "http://127.0.0.1:1"
        session = make_running_session(cast.alice, make_agent(gateway_url=url))
        answer = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/logs/")
    assert (answer.status_code, answer.json()["code"]) == (503, "node-unreachable")
    assert "secret" not in answer.content.decode()


@pytest.mark.parametrize("query", [{"kernel": "x"}, {"tail": "-1"}, {"tail": "many"}, {"tail": 10**9}])
def test_it_names_a_wrong_parameter(cast: Cast, query: dict[str, Any]) -> None:
    answer = Caller(cast.alice).get(f"{SESSIONS}{make_session(cast.alice).pk}/logs/", **query)
    assert (answer.status_code, answer.json()["field"]) == (400, next(iter(query)))


def test_it_reaches_no_foreign_kernel_through_an_own_session(cast: Cast) -> None:
    theirs = ended_session(cast, b"private").kernels.get()
    own = make_session(cast.bob)
    bob = Caller(cast.bob)
    assert bob.get(f"{SESSIONS}{own.pk}/logs/", kernel=theirs.pk).status_code == 404
    assert bob.get(f"{SESSIONS}{theirs.session_id}/logs/").status_code == 404
