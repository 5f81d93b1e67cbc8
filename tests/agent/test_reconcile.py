"""What follows from a listing and an answer, without any thread or call."""

from __future__ import annotations

from uuid import UUID, uuid4

from backendai.agent.loop.reconcile import Orders, Reconciler
from backendai.base.wire.homes import STORE
from backendai.base.wire.images import COMMIT
from backendai.base.wire.messages import Desired, KernelSighting, StopOrder, SyncDown

ONE = uuid4()


def answer(**over: object) -> SyncDown:
    return SyncDown.model_validate({"deployment": "test", "public_key": ""} | over)


def sighting(
    kernel_id: UUID = ONE, generation: int = 1, *, running: bool = True, exit_code: int | None = None
) -> KernelSighting:
    return KernelSighting(kernel_id=kernel_id, generation=generation, running=running, exit_code=exit_code)


def test_it_thaws_what_no_job_holds_at_the_second_sight_and_no_kernel_that_ends() -> None:
    reconciler, frozen = Reconciler(), sighting().model_copy(update={"frozen": True})
    job = {"kind": STORE, "job_id": uuid4()}
    for _ in range(3):
        assert compare(reconciler, [frozen], desired=started(), jobs=[job]) == Orders()
        commit = [job | {"kind": COMMIT}]  # its engine pauses the container
        assert compare(reconciler, [frozen], desired=started(), jobs=commit) == Orders()
    assert compare(reconciler, [frozen], desired=started(), jobs=[job | {"kind": "image.pull"}]) == Orders()
    assert compare(reconciler, [frozen], desired=started()).thaw == [(ONE, 1)]
    assert compare(reconciler, [sighting()], desired=started()) == Orders()
    for _ in range(3):
        orders = compare(reconciler, [frozen], stop=[StopOrder(kernel_id=ONE, generation=1)], desired=started())
        assert orders.thaw == []
    compare(reconciler, [frozen], desired=started())
    reconciler.forget()
    assert compare(reconciler, [frozen], desired=started()).thaw == []


def started(generation: int = 1) -> list[Desired]:
    return [Desired(kernel_id=ONE, generation=generation, started=True)]


def compare(
    reconciler: Reconciler, listing: list[KernelSighting], *, held: frozenset[UUID] = frozenset(), **over: object
) -> Orders:
    return reconciler.compare(listing, answer(**over), held=held, eager=False)


def test_it_orders_nothing_when_all_is_as_wanted() -> None:
    reconciler = Reconciler()
    for _ in range(3):
        assert compare(reconciler, [sighting()], desired=started()) == Orders()


def test_it_misses_a_kernel_only_when_it_was_wanted_before_the_listing() -> None:
    reconciler = Reconciler()
    assert compare(reconciler, [], desired=started()).missing == []  # it may have started after the listing
    assert compare(reconciler, [], desired=started()).missing == []  # first strike
    assert compare(reconciler, [], desired=started()).missing == [(ONE, 1)]


def test_it_does_not_miss_what_an_action_holds() -> None:
    reconciler = Reconciler()
    for _ in range(4):
        assert compare(reconciler, [], held=frozenset({ONE}), desired=started()).missing == []


def test_it_counts_strikes_by_generation() -> None:
    reconciler = Reconciler()
    compare(reconciler, [], desired=started(1))
    compare(reconciler, [], desired=started(1))
    assert compare(reconciler, [], desired=started(2)).missing == []


def test_it_starts_anew_with_strikes_after_forgetting() -> None:
    reconciler = Reconciler()
    stray = sighting()
    compare(reconciler, [stray], unwanted=[stray])
    reconciler.forget()
    assert compare(reconciler, [stray], unwanted=[stray]).discard == []
    assert compare(reconciler, [stray], unwanted=[stray]).discard == [(ONE, 1)]


def test_it_looks_at_what_ended_but_leaves_what_is_being_stopped_to_the_stop() -> None:
    ended = sighting(running=False)
    assert compare(Reconciler(), [ended], desired=started()).ended == [(ONE, 1)]
    stop = [StopOrder(kernel_id=ONE, generation=1)]
    orders = compare(Reconciler(), [ended], desired=started(), stop=stop)
    assert orders.ended == [] and orders.stop == stop


def test_it_does_not_take_the_end_of_an_old_generation_for_that_of_the_new_one() -> None:
    wanted = [Desired(kernel_id=ONE, generation=2, started=False)]
    reconciler = Reconciler()
    compare(reconciler, [sighting(running=False, exit_code=1)], desired=wanted)
    orders = compare(reconciler, [sighting(running=False, exit_code=1)], desired=wanted)
    assert orders.ended == [] and orders.start == [(ONE, 2)]


def test_it_starts_what_was_made_but_never_begun_and_tells_the_end_of_what_ran() -> None:
    wanted = [Desired(kernel_id=ONE, generation=1, started=False)]
    made, over = sighting(running=False), sighting(running=False, exit_code=0)
    reconciler = Reconciler()
    compare(reconciler, [made], desired=wanted)
    orders = compare(reconciler, [made], desired=wanted)
    assert orders.start == [(ONE, 1)] and orders.ended == []
    orders = compare(reconciler, [over], desired=wanted)
    assert orders.start == [] and orders.ended == [(ONE, 1)]
