"""Running code over REST and the websocket, through a real gateway in front of simulated kernels."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from aiohttp import web
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client

from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.agent.gateway.server import Gateway, GatewayView
from backendai.agent.kernel_index import KernelIndex
from backendai.base.core.slots import Slots
from backendai.base.wire.tickets import public_key_of
from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.gates.gateways import guests
from tests.agent.specs import make_spec
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_running_session
from tests.patience import patient
from tests.realtime.sockets import script, socket
from tests.web.conftest import browse  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def meter(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    touched: list[Any] = []
    monkeypatch.setattr(guests.meter, "touch", touched.append)
    return touched


@contextmanager
def node(session: ComputeSession) -> Iterator[SimulatedBackend]:
    """A gateway in a thread that holds the session's main kernel."""
    kernel = session.kernels.get(rank=0)
    backend = SimulatedBackend(deployment="test", capacity=Slots({"cpu": 4000}), pace=SimulatedDurations(time_scale=0))
    backend.start(make_spec(kernel_id=kernel.pk, generation=kernel.generation, image="simulated/python"))
    roster, ready, address, loops = KernelIndex(), threading.Event(), [], []
    roster.note(kernel.pk, kernel.generation)
    view = GatewayView(backend, roster, lambda: public_key_of(settings.TICKET_KEY), time.time, dict)

    async def serve() -> None:
        runner = web.AppRunner(Gateway(view).application(), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(site._server.sockets[0].getsockname()[1])
        loops.append((asyncio.get_running_loop(), stop := asyncio.Event()))
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(patient(10))
    Agent.objects.filter(pk=kernel.agent_id).update(gateway_url=f"http://127.0.0.1:{address[0]}")
    yield backend
    backend.close()
    loops[0][0].call_soon_threadsafe(loops[0][1].set)
    thread.join(patient(5))


@pytest.fixture
def session(cast: Cast) -> Iterator[ComputeSession]:
    guests._audited.clear()
    session = make_running_session(cast.alice)
    with node(session):
        yield session


def run(caller: Caller, session: ComputeSession, code: str, **more: Any) -> Any:
    return caller.post(f"{SESSIONS}{session.pk}/runs/", {"code": code, "wait": 10, **more})


def test_code_runs_and_is_read_from_an_offset_on(cast: Cast, session: ComputeSession) -> None:
    alice = Caller(cast.alice)
    answer = run(alice, session, "print(6*7)", run_id="first")
    assert (answer.status_code, answer.json()["exit_code"]) == (200, 0)
    assert answer.json()["items"] == [{"type": "stdout", "text": "42\n"}]
    assert run(alice, session, "print(1)", run_id="first").json()["items"][0]["text"] == "42\n", "the same run"
    path = f"{SESSIONS}{session.pk}/runs/first/"
    assert alice.get(path, after=answer.json()["end"]).json()["items"] == []
    assert alice.get(path).json()["items"] == answer.json()["items"]
    assert [one["run_id"] for one in alice.get(f"{SESSIONS}{session.pk}/runs/").json()["runs"]] == ["first"]
    assert run(alice, session, "exit(3)").json()["exit_code"] == 3
    assert alice.delete(path).status_code == 200
    assert alice.get(path).json()["code"] == "no-such-run"


def test_input_interrupt_and_contexts(cast: Cast, session: ComputeSession) -> None:
    alice, base = Caller(cast.alice), f"{SESSIONS}{session.pk}/"
    asked = run(alice, session, "input('name? ')")
    assert (asked.status_code, asked.json()["state"], asked.json()["prompt"]) == (202, "WAITING_INPUT", "name? ")
    path = f"{base}runs/{asked.json()['run_id']}/"
    assert alice.post(f"{path}input/", {"text": "Bo"}).status_code == 200
    while (told := alice.get(path, wait=5, after=9**9).json())["state"] != "FINISHED":
        assert told["state"] == "RUNNING"
    asks, result = alice.get(path).json()["items"]
    assert (asks["text"], result["data"]) == ("name? Bo\n", "'Bo'")
    assert alice.post(f"{path}input/", {"text": "Bo"}).json()["code"] == "no-question"
    slow = run(alice, session, "sleep 60", wait=0, context="other").json()
    assert alice.post(f"{base}runs/{slow['run_id']}/interrupt/").json()["state"] == "INTERRUPTING"
    assert alice.get(f"{base}runs/{slow['run_id']}/", wait=5, after=9**9).json()["reason"] == "interrupted"
    assert {one["name"] for one in alice.get(f"{base}contexts/").json()["results"]} == {"main", "other"}
    assert alice.post(f"{base}contexts/other/restart/").status_code == 200
    assert alice.delete(f"{base}contexts/other/").status_code == 204
    assert alice.post(f"{base}contexts/", {"name": "third"}).status_code == 201
    assert alice.post(f"{base}complete/", {"code": "pr"}).json()["matches"]
    assert alice.get(f"{base}languages/").json()["results"] == [{"name": "simulated", "title": "Simulated"}]
    assert alice.delete(f"{base}contexts/other/?runs=true").status_code == 204
    assert alice.get(f"{base}runs/{slow['run_id']}/").json()["code"] == "no-such-run"
    assert alice.get(f"{base}files/x").json()["code"] == "no-files"


def test_the_originals_shape(cast: Cast, session: ComputeSession) -> None:
    alice, path = Caller(cast.alice), f"{SESSIONS}{session.pk}/execute/"

    def execute(**body: Any) -> dict[str, Any]:
        return alice.post(path, body).json()["result"]

    done = execute(mode="query", code="print(1+1)", runId="r1", options={})
    assert done["console"] == [["stdout", "2\n"]]
    assert (done["runId"], done["status"], done["exitCode"], done["files"]) == ("r1", "finished", 0, [])
    asked = execute(mode="query", code="input('who? ')", runId="r2")
    assert (asked["status"], asked["options"]["is_password"], asked["exitCode"]) == ("waiting-input", False, None)
    assert asked["console"] == [["stdout", "who? "]]
    answered = execute(mode="input", code="me", runId="r2")
    assert answered["console"] == [["stdout", "me\n"], ["media", ["text/plain", "'me'"]]]
    whole = execute(mode="continue", runId="r2", options={"offset": 0})
    assert whole["console"][0] == ["stdout", "who? me\n"]
    slow = execute(mode="query", code="sleep 60", runId="r3")
    assert (slow["status"], slow["exitCode"]) == ("continued", None)
    execute(mode="interrupt", runId="r3")
    assert execute(mode="continue", runId="r3")["status"] == "finished"
    assert execute(mode="complete", code="pr")["completions"]["suggestions"]


def test_clients_that_keep_no_offset_get_all_output_once(cast: Cast, session: ComputeSession) -> None:
    alice, path = Caller(cast.alice), f"{SESSIONS}{session.pk}/execute/"

    def execute(**body: Any) -> dict[str, Any]:
        return alice.post(path, body).json()["result"]

    long = "\x01" * 300_000  # six bytes of JSON each
    told = execute(mode="query", code=f"print(1)\nsleep 2.5\necho {long}\necho {long}\nexit(3)", runId="r")
    polls = [told]
    while told["status"] != "finished":
        told = execute(mode="continue", runId="r", options={})
        polls.append(told)
        assert len(polls) < 10, [poll["status"] for poll in polls]
    text = "".join(text for poll in polls for kind, text in poll["console"])
    assert (text == f"1\n{long}\n{long}\n", told["exitCode"]) == (True, 3)
    assert polls[0]["status"] == "continued" and len(polls) >= 3
    again = execute(mode="query", code="", runId="r")
    assert again["console"][0] == ["stdout", "1\n"], "a repeated first call tells from the beginning"
    assert execute(mode="continue", runId="r", options={"offset": 0})["console"][0] == ["stdout", "1\n"]


def test_strangers_reach_nothing_and_batch_sessions_run_no_code(cast: Cast, session: ComputeSession) -> None:
    alice, charlie = Caller(cast.alice), Caller(cast.charlie)
    run(alice, session, "1", run_id="mine")
    assert run(charlie, session, "1").status_code == 404
    for path in ("runs/", "runs/mine/", "contexts/", "files/x"):
        assert charlie.get(f"{SESSIONS}{session.pk}/{path}").status_code == 404
    for kind, instead in (
        ("batch", "Use the terminal or SSH"),
        ("system", "launch an interactive session that mounts"),
    ):
        ComputeSession.objects.filter(pk=session.pk).update(session_type=kind)
        refusal = run(alice, session, "1").json()
        assert refusal["code"] == "not-interactive" and instead in refusal["detail"]


def test_odd_requests_are_refused_with_their_field(cast: Cast, session: ComputeSession) -> None:
    alice = Caller(cast.alice)
    odd = {
        "mode": {"mode": "odd"},
        "code": {"code": "x" * (2**20 + 1)},
        "run_id": {"run_id": "a/b"},
        "wait": {"wait": 99},
        "sudo": {"sudo": True},
        "options": {"options": {"exec": 5, "x": 1}},
    }
    for field, body in odd.items():
        answer = alice.post(f"{SESSIONS}{session.pk}/runs/", body)
        assert answer.status_code == 400 and answer.json()["field"].startswith(field), (body, answer.json())


def test_the_first_run_is_audited_and_its_code_is_not(cast: Cast, session: ComputeSession) -> None:
    alice = Caller(cast.alice)
    for _ in range(3):
        run(alice, session, "echo secret")
    [entry] = AuditEntry.objects.filter(action="session.execute")
    assert (str(entry.target_id), entry.actor_id) == (str(session.pk), cast.alice.pk)
    assert "secret" not in json.dumps(entry.details)


def test_a_node_that_is_away_is_a_fault_of_the_platform(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    Agent.objects.update(gateway_url="http://127.0.0.1:1")
    answer = run(Caller(cast.alice), session, "1")
    assert (answer.status_code, answer.json()["code"]) == (503, "node-unreachable")


@pytest.mark.parametrize(("status", "body"), [(200, b""), (503, b'{"code": "no-guest", "detail": "It has ended."}')])
def test_a_guest_that_ends_before_its_answer_is_worth_another_try(cast: Cast, status: int, body: bytes) -> None:
    class Silent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    session = make_running_session(cast.alice)
    with HTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Agent.objects.update(gateway_url=f"http://127.0.0.1:{server.server_port}")
        answer = run(Caller(cast.alice), session, "1")
        server.shutdown()
    assert (answer.status_code, answer.json()["code"]) == (503, "node-unreachable")


def test_an_agent_that_cannot_run_code_is_named_by_rest_and_page(
    cast: Cast,
    session: ComputeSession,
    browse: Callable[[User], Client],  # noqa: F811
) -> None:
    agent = session.kernels.get(rank=0).agent
    Agent.objects.filter(pk=agent.pk).update(capabilities=["apps"])
    answer = run(Caller(cast.alice), session, "1")
    assert (answer.status_code, answer.json()["code"]) == (409, "execution-impossible")
    page = browse(cast.alice).get(f"/sessions/{session.pk}/console/").content.decode()
    assert f"Agent {agent.name} cannot run code in its sessions" in page and 'id="console"' not in page
    Agent.objects.filter(pk=agent.pk).update(capabilities=["execution"])
    assert 'id="console"' in browse(cast.alice).get(f"/sessions/{session.pk}/console/").content.decode()


@pytest.mark.asyncio
async def test_the_socket_tells_what_happens_and_goes_on_where_it_was(cast: Cast, session: ComputeSession) -> None:
    headers = await sync_to_async(script)(cast.alice)
    address = f"/ws/sessions/{session.pk}/runs/"
    async with socket(address, headers) as one:
        assert one.accepted
        await one.send('{"type": "attach"}')
        await one.send('{"type": "run", "id": 1, "code": "print(6*7)\\nsleep 0.3\\nprint(7)", "run_id": "r"}')
        seen: list[dict[str, Any]] = []
        while not (seen and seen[-1].get("state") == "FINISHED"):
            seen.append(await one.message())
    runs = [told for told in seen if told["type"] == "run"]
    assert "".join(item["text"] for told in runs for item in told["items"]) == "42\n7\n"
    assert [told["id"] for told in seen if told["type"] == "answer"] == [1]
    async with socket(address, headers) as again:
        await again.send(json.dumps({"type": "attach", "after": {"r": runs[0]["offset"] or 0}}))
        told = await again.message()
        while told["type"] != "run":
            told = await again.message()
        assert (told["state"], told["offset"]) == ("FINISHED", runs[-1]["offset"])


@pytest.mark.asyncio
async def test_strangers_open_no_socket(cast: Cast, session: ComputeSession) -> None:
    headers = await sync_to_async(script)(cast.charlie)
    async with socket(f"/ws/sessions/{session.pk}/runs/", headers) as one:
        assert not one.accepted
