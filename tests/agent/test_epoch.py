"""A restored or another database costs no running kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendai.agent.loop.reconcile import MOST_REMOVED_AT_ONCE
from backendai.base.wire.messages import Epoch, KernelSighting, KernelSpec
from tests.agent.memory_backend import Entry
from tests.agent.node import Node
from tests.agent.portal import FakePortal, make_spec

OLD, NEW = Epoch(lineage="a", tick=7), Epoch(lineage="a", tick=90)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose portal has told it how old the database is."""
    node = Node(data=tmp_path)
    node.portal.epoch = NEW
    node.sync()
    return node


def run(node: Node, **over: object) -> KernelSpec:
    spec = node.portal.want(make_spec(**over))
    node.sync()
    node.sync()
    assert node.portal.states(spec.kernel_id) == ["RUNNING"]
    return spec


def restore(node: Node, epoch: Epoch) -> None:
    """Make the portal forget everything that runs."""
    node.portal.specs.clear()
    node.portal.epoch = epoch


@pytest.mark.parametrize("epoch", [OLD, Epoch(lineage="another", tick=1000)])
def test_it_keeps_what_an_older_or_another_database_calls_over(node: Node, epoch: Epoch) -> None:
    spec = run(node, manifest="signed")
    restore(node, epoch)
    for _ in range(4):
        node.sync()
    assert spec.kernel_id in node.backend.entries
    (told,) = node.portal.syncs[-1].unknown
    assert (told.kernel_id, told.generation, told.running, told.kept) == (spec.kernel_id, 1, True, True)
    assert told.manifest == "signed"


def test_it_keeps_them_over_its_own_restart_and_while_the_database_grows_older(node: Node, tmp_path: Path) -> None:
    spec = run(node)
    restore(node, OLD)
    node.sync()
    node.portal.epoch = Epoch(lineage="a", tick=NEW.tick + 1)
    again = Node(node.portal, node.backend, data=tmp_path)
    for _ in range(4):
        again.sync()
    assert spec.kernel_id in node.backend.entries


def test_it_removes_a_kept_kernel_when_an_administrator_decides(node: Node) -> None:
    spec, other = run(node), run(node)
    restore(node, OLD)
    node.sync()
    node.portal.removals = [KernelSighting(kernel_id=spec.kernel_id, generation=1, running=True)]
    node.sync()
    node.sync()
    assert set(node.backend.entries) == {other.kernel_id}


def test_it_lets_go_of_a_kernel_that_the_portal_wants_again(node: Node) -> None:
    spec = run(node)
    restore(node, OLD)
    node.sync()
    node.portal.want(spec)
    node.sync()
    node.portal.specs.clear()
    node.sync()
    node.sync()
    assert node.backend.entries == {}, "an ordinary kernel again, and over by the word of the same database"


def test_it_removes_what_begins_later_as_always(node: Node) -> None:
    restore(node, OLD)
    node.sync()
    run(node)
    node.portal.specs.clear()
    node.sync()
    node.sync()
    assert node.backend.entries == {}


def test_it_does_not_believe_that_many_kernels_are_over_at_once(node: Node) -> None:
    many = [run(node) for _ in range(MOST_REMOVED_AT_ONCE + 1)]
    node.portal.specs.clear()
    for _ in range(3):
        node.sync()
    assert len(node.backend.entries) == len(many)
    assert {one.kernel_id for one in node.portal.syncs[-1].unknown} == {spec.kernel_id for spec in many}


def test_it_believes_it_on_its_first_sync_for_sessions_end_while_an_agent_is_away() -> None:
    node = Node(FakePortal())
    for _ in range(MOST_REMOVED_AT_ONCE + 1):
        node.backend.entries[make_spec().kernel_id] = Entry(1)
    node.sync()
    node.loop._heard_at = None  # a silence of more than a minute
    node.sync()
    assert node.backend.entries == {}


def test_a_manifest_goes_with_its_kernel(node: Node, tmp_path: Path) -> None:
    spec = run(node, manifest="signed")
    node.kernels.sweep()
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == [f"{spec.kernel_id}.json"]
    node.portal.terminate(spec.kernel_id)
    node.sync()
    node.kernels.sweep()
    assert list((tmp_path / "manifests").iterdir()) == []
