"""Which devices a kernel gets, and why it gets none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backendai.base.core.slots import Slots
from backendai.scheduler.capacity.devices import DeviceBook, flaw_of
from backendai.scheduler.snapshot import DeviceView
from tests.effort import examples
from tests.scheduler.worlds import a_session, an_agent, placement_of, plan_of, wait_of

many = settings(max_examples=examples(100), deadline=None)


def a_book(slot, *free, capacity=1000, **rules):
    """Devices g0, g1, … that have this much left, in thousandths."""
    return DeviceBook([DeviceView(f"g{n}", slot, capacity, capacity - left) for n, left in enumerate(free)], **rules)


def shares(book, slot, *asked):
    """What kernels that ask for so much of the slot get, each as device → thousandths; None when they do not fit."""
    chosen = book.choose([((slot, amount),) for amount in asked])
    return chosen and [each.get(slot, {}) for each in chosen]


@pytest.mark.parametrize(
    ("free", "asked", "given_"),
    [
        ((1000, 1000), 500, {"g0": 500}),
        ((1000, 600, 500), 500, {"g2": 500}),  # the smallest that fits
        ((400, 700), 500, {"g1": 500}),
        ((300, 200, 100), 400, {"g0": 200, "g1": 200}),
        ((1000, 1000, 1000), 1500, {"g0": 750, "g1": 750}),  # two suffice, so the third stays whole
        ((900, 600, 1000), 1200, {"g1": 600, "g0": 600}),  # leaves the least behind
        ((400, 600, 900), 1000, {"g1": 500, "g2": 500}),  # even before smaller
        ((1000, 1000, 1000), 2000, {"g0": 1000, "g1": 1000}),
        ((340, 330, 330), 1000, {"g0": 340, "g1": 330, "g2": 330}),
        ((100, 100), 300, None),
        ((995, 995), 990, {"g0": 990}),
        ((1000,), 15, {"g0": 15}),
    ],
)
def test_it_takes_a_fraction_of_one_device_or_else_of_as_few_as_possible(free, asked, given_):
    chosen = shares(a_book("cuda.shares", *free), "cuda.shares", asked)
    assert chosen == (None if given_ is None else [given_])


def test_it_splits_no_fraction_of_one_device_where_that_is_switched_off():
    assert shares(a_book("cuda.shares", 300, 200, allow_fragmentation=False), "cuda.shares", 400) is None
    assert shares(a_book("cuda.shares", 300, 400, allow_fragmentation=False), "cuda.shares", 400) == [{"g1": 400}]


def test_it_splits_what_is_more_than_one_device_even_where_fragmentation_is_switched_off():
    book = a_book("cuda.shares", 1000, 1000, allow_fragmentation=False)
    assert shares(book, "cuda.shares", 1500) == [{"g0": 750, "g1": 750}]


@pytest.mark.parametrize(
    ("fill", "given_"), [(False, {"g0": 2000, "g1": 2000, "g2": 1000}), (True, {"g2": 3000, "g0": 2000})]
)
def test_it_takes_whole_units_evenly_or_fills_one_device_after_the_other(fill, given_):
    book = a_book("tpu.device", 4000, 4000, 3000, capacity=4000, fill=fill)
    assert shares(book, "tpu.device", 5000) == [given_]


def test_it_takes_whole_devices_that_nobody_holds():
    assert shares(a_book("cuda.device", 0, 1000, 1000), "cuda.device", 2000) == [{"g1": 1000, "g2": 1000}]
    assert shares(a_book("cuda.device", 0, 1000), "cuda.device", 2000) is None


def test_it_takes_exactly_one_of_unique_devices():
    assert shares(a_book("cuda.mig-1g.10gb", 0, 1000, 1000), "cuda.mig-1g.10gb", 1000) == [{"g1": 1000}]
    assert shares(a_book("cuda.mig-1g.10gb", 0), "cuda.mig-1g.10gb", 1000) is None


def test_it_gives_each_kernel_of_a_session_its_own_devices():
    assert shares(a_book("cuda.device", 1000, 1000), "cuda.device", 1000, 1000) == [{"g0": 1000}, {"g1": 1000}]
    assert shares(a_book("cuda.shares", 500, 300), "cuda.shares", 300, 500) == [{"g1": 300}, {"g0": 500}]


def test_it_begins_with_the_largest_kernel():
    book = a_book("cuda.shares", 600, 500, allow_fragmentation=False)
    assert shares(book, "cuda.shares", 500, 600) == [{"g1": 500}, {"g0": 600}]


def both(*taken):
    """Devices that can be had whole or in shares; ``taken`` names the slot by which each is held."""
    return tuple(
        DeviceView(f"g{n}", slot, 1000, (500 if slot.endswith("shares") else 1000) if slot == held else 0)
        for n, held in enumerate(taken)
        for slot in ("cuda.device", "cuda.shares")
    )


def test_it_never_gives_one_device_whole_and_in_shares_at_once():
    book = DeviceBook(both("cuda.device", "cuda.shares", ""))
    assert shares(book, "cuda.device", 1000) == [{"g2": 1000}]
    assert shares(book, "cuda.device", 2000) is None
    assert shares(book, "cuda.shares", 500) == [{"g1": 500}]
    assert shares(book, "cuda.shares", 1600) is None


def test_it_counts_what_is_held_by_one_slot_as_gone_from_the_other():
    has = {"cpu": 8, "cuda.device": 2, "cuda.shares": 2}
    agent = an_agent(has=has, used={"cuda.device": 1}, devices=both("cuda.device", ""))
    first = a_session("first", {"cuda.shares": "0.5"}, age=2)
    second = a_session("second", {"cuda.device": 1}, age=1)
    plan = plan_of([agent], [first, second])
    assert placement_of(plan, first).devices == {first.kernels[0].id: {"cuda.shares": {"g1": 500}}}
    assert "1 GPU requested, 0 available" in wait_of(plan, second).reason.message


def test_it_says_how_much_is_free_in_all_and_on_one_device_when_fractions_do_not_go_together():
    devices = tuple(DeviceView(f"g{n}", "cuda.shares", 1000, 700) for n in range(2))
    agent = an_agent(has={"cuda.shares": 2}, used={"cuda.shares": "1.4"}, devices=devices)
    session = a_session(asks={"cuda.shares": "0.5"})
    wait = plan_of([agent], [session], allow_fragmentation=False).waits[0]
    assert wait.reason.code == "fragmented"
    assert wait.reason.message == (
        "No agent has 0.5 GPU shares on devices that can be combined now: gpu-01 comes closest "
        "(0.5 GPU shares requested, 0.6 free in total, at most 0.3 on one device)."
    )
    assert wait.reason.details["fragments"] == [
        {"slot": "cuda.shares", "wanted": "0.5", "free": "0.6", "largest": "0.3"}
    ]
    assert wait.reason.details["agents"]["devices"] == 1
    assert (wait.steps[-1].step, wait.steps[-1].code) == ("devices", "fragmented")
    plan = plan_of([agent], [session])
    assert placement_of(plan, session).devices == {session.kernels[0].id: {"cuda.shares": {"g0": 250, "g1": 250}}}


@pytest.mark.parametrize(
    ("asks", "sentence"),
    [
        ({"cuda.shares": "0.505"}, "0.505 GPU shares cannot be allocated: it comes in steps of 0.01."),
        ({"cuda.device": "0.5"}, "0.5 GPUs cannot be allocated: only whole devices can be allocated."),
        ({"cuda.mig-1g.10gb": 2}, "2 cuda.mig-1g.10gb cannot be allocated: a kernel takes exactly 1."),
    ],
)
def test_it_refuses_amounts_that_no_device_can_give(asks, sentence):
    flaw = flaw_of(Slots.parse(asks).items())
    assert (flaw.code, flaw.message, flaw.never) == ("invalid-amount", sentence, True)


def test_it_finds_no_flaw_in_amounts_that_devices_give():
    amounts = {"cpu": "0.5", "cuda.shares": "0.51", "cuda.device": 2, "cuda.mig-1g.10gb": 1}
    assert flaw_of(Slots.parse(amounts).items()) is None


def test_it_counts_amounts_alone_on_agents_whose_devices_are_not_known():
    agent = an_agent(has={"cuda.shares": 2}, used={"cuda.shares": "1.4"})
    session = a_session(asks={"cuda.shares": "0.5"})
    plan = plan_of([agent], [session], allow_fragmentation=False)
    assert placement_of(plan, session).devices == {}


def test_it_names_the_devices_of_each_kernel_of_a_session_on_one_agent():
    devices = tuple(DeviceView(f"g{n}", "cuda.device", 1000) for n in range(4))
    session = a_session(kernels=[{"cuda.device": 1}, {"cpu": 1}, {"cuda.device": 2}])
    placement = placement_of(plan_of([an_agent(devices=devices)], [session]), session)
    first, _, third = session.kernels
    assert placement.devices == {
        first.id: {"cuda.device": {"g2": 1000}},
        third.id: {"cuda.device": {"g0": 1000, "g1": 1000}},
    }


def test_it_frees_estimated_devices_for_amounts_of_which_only_the_sum_is_known():
    book = a_book("cuda.shares", 0, 500, 700)
    book.estimate_return("cuda.shares", 500)
    assert book.available("cuda.shares") == {"g0": 0, "g1": 1000, "g2": 700}
    book.estimate_return("cuda.shares", 1200)
    assert book.available("cuda.shares") == {"g0": 1000, "g1": 1000, "g2": 900}


@st.composite
def books_and_kernels(draw):
    slots = draw(st.sampled_from([("cuda.device",), ("cuda.shares",), ("cuda.device", "cuda.shares")]))
    devices = []
    for number in range(draw(st.integers(1, 5))):
        held = draw(st.sampled_from(slots))
        for slot in slots:
            step, most = (10, 100) if slot == "cuda.shares" else (1000, 1)
            taken = draw(st.integers(0, most)) * step if slot == held else 0
            devices.append(DeviceView(f"g{number}", slot, 1000, taken))
    amounts = {
        "cuda.device": st.integers(1, 3).map((1000).__mul__),
        "cuda.shares": st.integers(1, 250).map((10).__mul__),
    }
    kernel = st.lists(st.sampled_from(slots), min_size=1, max_size=2, unique=True).flatmap(
        lambda names: st.tuples(*[st.tuples(st.just(name), amounts[name]) for name in names])
    )
    return devices, draw(st.lists(kernel, min_size=1, max_size=3)), draw(st.booleans()), draw(st.booleans())


@many
@given(books_and_kernels())
def test_it_gives_exactly_what_is_asked_and_no_device_more_than_it_has(case):
    devices, kernels, fill, fragmentation = case
    book = DeviceBook(devices, fill=fill, allow_fragmentation=fragmentation)
    chosen = book.choose(kernels)
    if chosen is None:
        return
    held = {(each.slot, each.id): each.taken for each in devices}
    for kernel, given_ in zip(kernels, chosen, strict=True):
        assert {slot: sum(amounts.values()) for slot, amounts in given_.items()} == dict(kernel)
        for slot, amounts in given_.items():
            for device, amount in amounts.items():
                assert amount > 0
                held[slot, device] += amount
    assert all(amount <= 1000 for amount in held.values())
    for device in {device for _, device in held}:
        assert [held.get(("cuda.device", device), 0), held.get(("cuda.shares", device), 0)].count(0) >= 1


@many
@given(books_and_kernels())
def test_it_restores_every_device_when_a_booking_is_undone(case):
    devices, kernels, fill, fragmentation = case
    book = DeviceBook(devices, fill=fill, allow_fragmentation=fragmentation)
    before = {slot: dict(book.available(slot)) for slot in book.slots}
    chosen = book.choose(kernels)
    assert {slot: dict(book.available(slot)) for slot in book.slots} == before
    if chosen is not None:
        copy = book.copy()
        book.take(chosen)
        assert {slot: dict(copy.available(slot)) for slot in copy.slots} == before
        book.take(chosen, times=-1)
        assert {slot: dict(book.available(slot)) for slot in book.slots} == before


@many
@given(st.lists(st.integers(0, 100).map((10).__mul__), min_size=1, max_size=5), st.integers(1, 300).map((10).__mul__))
def test_it_uses_as_few_devices_as_a_fraction_can_do_with(free, asked):
    chosen = shares(a_book("cuda.shares", *free), "cuda.shares", asked)
    if chosen is None:
        assert sum(free) < asked
        return
    fewest = next(n for n in range(1, 6) if sum(sorted(free, reverse=True)[:n]) >= asked)
    assert len(chosen[0]) == fewest


@many
@given(st.integers(0, 8), st.lists(st.integers(1, 5), max_size=4))
def test_it_places_on_agents_without_known_devices_whatever_it_places_by_amount(used, asked):
    plain = an_agent(has={"cpu": 9, "cuda.device": 8}, used={"cuda.device": used})
    taken = [DeviceView(f"g{n}", "cuda.device", 1000, 1000 if n < used else 0) for n in range(8)]
    sessions = [a_session(f"s{n}", {"cuda.device": each}, age=9 - n) for n, each in enumerate(asked)]
    by_amount = plan_of([plain], sessions, sequence="lifo")
    by_device = plan_of([replace(plain, devices=tuple(taken))], sessions, sequence="lifo")
    assert [each.kernels for each in by_amount.placements] == [each.kernels for each in by_device.placements]
