"""The table of reasons: each end is told as what it was, in the status, the history and the notices."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from backendai.base.wire.messages import KernelState
from backendai.domain.compute.models import ComputeSession, SchedulingRecord, SessionNotice
from backendai.domain.compute.reasons import REASONS
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.status import Outcome, Status
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_running_session, make_session, place, report_of

pytestmark = pytest.mark.django_db
PACKAGE = Path(__file__).resolve().parents[2] / "backendai"
FAILURES = sorted(code for code, reason in REASONS.items() if reason.fails)
RETRIABLE = sorted(code for code, reason in REASONS.items() if reason.is_retriable)


def end_with(session: ComputeSession, code: str) -> ComputeSession:
    kernel = session.kernels.get()
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, reason=code, message="Words."))
    session.refresh_from_db()
    return session


def results_of(session: ComputeSession) -> list[tuple[str, str, str]]:
    rows = SchedulingRecord.objects.filter(session=session).order_by("id")
    return list(rows.values_list("result", "error_code", "to_status"))


@pytest.mark.parametrize("code", FAILURES)
def test_a_failed_end_is_a_failure_with_its_code_in_history_and_notice(cast: Cast, code: str) -> None:
    session = end_with(make_running_session(cast.alice, make_agent()), code)
    assert (session.status, session.status_reason) == (REASONS[code].final, code)
    assert (Outcome.FAILURE, code, Status.TERMINATING) in results_of(session)
    assert (Outcome.SUCCESS, code, Status.TERMINATING) not in results_of(session)
    assert SessionNotice.objects.filter(session=session, kind="failed").count() == 1


@pytest.mark.parametrize("code", ["user-requested", "self-terminated", "agent-drained", "agent-stopped"])
def test_an_end_that_was_wished_for_is_no_failure(cast: Cast, code: str) -> None:
    session = end_with(make_running_session(cast.alice, make_agent()), code)
    assert session.status == Status.TERMINATED
    assert Outcome.FAILURE not in {result for result, _, _ in results_of(session)}


@pytest.mark.parametrize("code", [code for code in FAILURES if REASONS[code].final == Status.ERROR])
def test_the_last_step_of_a_session_in_error_is_a_failure_too(cast: Cast, code: str) -> None:
    session = end_with(make_running_session(cast.alice, make_agent()), code)
    assert results_of(session)[-1] == (Outcome.FAILURE, code, Status.ERROR)


@pytest.mark.parametrize("code", RETRIABLE)
def test_a_start_that_may_succeed_elsewhere_is_tried_again(cast: Cast, code: str) -> None:
    make_group(max_retries=1)
    agent, session = make_agent(), make_session(cast.alice)
    place(session, agent)
    session = end_with(session, code)
    assert (session.status, session.avoid_agents) == (Status.PENDING, [str(agent.pk)])
    assert results_of(session)[-1][:2] == (Outcome.NEED_RETRY, code)


def test_a_code_of_a_newer_agent_is_a_fault_and_keeps_its_sentence(cast: Cast) -> None:
    session = end_with(make_running_session(cast.alice, make_agent()), "moon-in-the-way")
    assert (session.status, session.status_reason) == (Status.ERROR, "moon-in-the-way")
    assert session.status_message == "Words."


def test_every_code_with_which_an_agent_ends_a_kernel_is_in_the_table() -> None:
    found = {code for path in (PACKAGE / "agent").rglob("*.py") for code in _codes_in(ast.parse(path.read_text()))}
    assert {"cluster-network-failed", "scratch-failed", "name-taken"} <= found  # refused starts
    assert {"node-lost", "pod-evicted", "layer-full", "backend-error", "image-not-found"} <= found  # ends and errors
    assert found - {"", "exited"} <= set(REASONS)  # stopped and ended by itself: the portal knows which it asked for


def _codes_in(tree: ast.Module) -> set[str]:
    """Return the codes of refused starts (also of their classes), of ends and of overfull disks."""
    found = {item for node in ast.walk(tree) for item in _codes_of(node)}
    return {item.value for item in found if isinstance(item, ast.Constant) and isinstance(item.value, str)}


def _codes_of(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Call(func=ast.Name("StartFailed"), keywords=keywords):
            return [item.value for item in keywords if item.arg == "code"]
        case ast.Call(func=ast.Name("LimitExceeded" | "partial"), keywords=keywords):
            return [item.value for item in keywords if item.arg == "reason"]
        case ast.Call(func=ast.Name("Ended"), args=[_, reason, *_]):
            return [reason]
        case ast.ClassDef(name="BackendError" | "StartFailed" | "ImageNotFound", body=body):
            return [item.value for item in body if isinstance(item, ast.Assign)]
    return []
