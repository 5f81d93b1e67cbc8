"""Kernels that count as running once a program in them listens."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from backendai.base.wire.messages import KernelReport, KernelState
from tests.agent.node import Node
from tests.agent.portal import make_spec
from tests.patience import until
from tests.slow_machines import BUSY, make_machine

CHECK = {"tcp": 8786, "within": 30}


def starting(listens: Callable[[UUID, int], bool], **check: float) -> tuple[Node, UUID]:
    node = Node()
    node.kernels.ask_readiness_of(listens)
    spec = node.portal.want(make_spec(ready=CHECK | check))
    node.kernels.start_soon(spec.kernel_id, spec.generation)
    return node, spec.kernel_id


def last(node: Node) -> KernelReport:
    return node.portal.reports[-1]


def test_a_kernel_runs_when_its_program_listens() -> None:
    answers = iter([False, True])
    node, kernel_id = starting(lambda kernel, port: port == 8786 and next(answers))
    node.settle()
    assert node.portal.states(kernel_id) == ["CREATING", "RUNNING"]
    assert "8786" in node.portal.reports[0].full_message and "ready" in last(node).timings


def test_a_kernel_whose_program_never_listens_fails_with_that_reason_and_its_log() -> None:
    node, kernel_id = starting(lambda kernel, port: False, within=0)
    node.settle()
    assert (last(node).state, last(node).reason) == (KernelState.TERMINATED, "not-ready")
    assert "8786" in last(node).message and node.portal.logs[kernel_id][0]
    assert kernel_id not in node.backend.entries


def test_a_program_that_ends_before_it_listens_is_an_end_like_any_other() -> None:
    node, kernel_id = starting(lambda kernel, port: False)
    until(lambda: node.portal.states(kernel_id) == ["CREATING"])
    node.backend.exit(kernel_id, 5)
    node.settle()
    assert (last(node).state, last(node).exit_code) == (KernelState.TERMINATED, 5)


def test_an_order_to_stop_ends_the_wait() -> None:
    node, kernel_id = starting(lambda kernel, port: False)
    until(lambda: node.portal.states(kernel_id) == ["CREATING"])
    node.kernels.stop_soon(kernel_id, 1)
    node.settle()
    assert last(node).state == KernelState.TERMINATED and kernel_id not in node.backend.entries


def test_a_program_that_is_late_on_a_busy_machine_is_told_with_that_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    make_machine(monkeypatch, BUSY)
    node, _ = starting(lambda kernel, port: False, within=0)
    node.settle()
    assert last(node).message == (
        "No program listened on port 8786 within 0 s. "
        "This machine is busy now (load 12 on 2 cores), which may be the cause."
    )


def test_an_agent_that_stops_leaves_the_kernel_and_the_next_one_goes_on_waiting() -> None:
    node, kernel_id = starting(lambda kernel, port: False)
    until(lambda: node.portal.states(kernel_id) == ["CREATING"])
    node.kernels.drain()
    node.settle()
    assert kernel_id in node.backend.entries
    after = Node(node.portal, node.backend)
    after.kernels.ask_readiness_of(lambda kernel, port: True)
    after.sync()
    assert node.portal.states(kernel_id)[-1] == "RUNNING" and node.backend.said.count("start") == 2
