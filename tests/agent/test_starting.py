"""The frame of a start, with a world in which a name is held by whatever the test puts there."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from backendai.agent.backends.base import StaleGeneration, Started, StartFailed
from backendai.agent.backends.shared.starting import KernelStarter, Occupant
from backendai.base.wire.messages import KernelSpec
from tests.agent.specs import make_spec


@dataclass
class Starter(KernelStarter[Occupant]):
    """``there`` has the name. ``vanishes``: so many kernels disappear before they run."""

    there: Occupant | None = None
    vanishes: int = 0
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("test")

    def _find(self, spec: KernelSpec) -> Occupant | None:
        return self.there

    def _occupant(self, found: Occupant) -> Occupant:
        return found

    def _discard(self, spec: KernelSpec, found: Occupant) -> None:
        self.events.append("discard")
        self.there = None

    def _leave(self, spec: KernelSpec) -> None:
        self.events.append("leave")

    def _create(self, spec: KernelSpec) -> Occupant | None:
        if self.there is not None:
            return None
        self.events.append("create")
        self.there = Occupant("test", spec.generation)
        return self.there

    def _run(self, spec: KernelSpec, found: Occupant, deadline: float, *, adopted: bool) -> Started | None:
        if self.vanishes:
            self.vanishes, self.there = self.vanishes - 1, None
            return None
        return Started(str(found.generation), adopted=adopted)


def test_it_creates_or_adopts_what_has_the_name() -> None:
    starter = Starter()
    assert starter.start(make_spec()) == Started("1", adopted=False)
    assert starter.start(make_spec()) == Started("1", adopted=True)
    assert starter.events == ["create"]


@pytest.mark.parametrize("there", [Occupant("test", 1, is_ours=False), Occupant("test", 2, is_whole=False)])
def test_it_removes_an_older_generation_of_anybody_and_what_is_not_whole(there: Occupant) -> None:
    starter = Starter(there)
    assert starter.start(make_spec(generation=2)) == Started("2", adopted=False)
    assert starter.events == ["discard", "create"]


def test_it_does_not_touch_what_is_newer_or_of_others() -> None:
    with pytest.raises(StaleGeneration, match="Generation 3 is here; 2 is out of date"):
        Starter(Occupant("test", 3)).start(make_spec(generation=2))
    for there in (Occupant("other", 1), Occupant("test", 2, is_ours=False)):
        starter = Starter(there)
        with pytest.raises(StartFailed) as refused:
            starter.start(make_spec(generation=2))
        assert (refused.value.code, starter.events, starter.there) == ("name-taken", ["leave"], there)
    with pytest.raises(StartFailed) as refused:
        Starter().start(make_spec(deployment="other"))
    assert refused.value.code == "wrong-deployment"


def test_it_tries_again_until_its_time_is_over() -> None:
    assert Starter(vanishes=2).start(make_spec()) == Started("1", adopted=False)
    with pytest.raises(StartFailed, match="still there after 0 seconds"):
        Starter(vanishes=10**6).start(make_spec(create_timeout=0.1))


def test_one_kernel_starts_once_at_a_time_and_others_do_not_wait() -> None:
    starter, spec = Starter(), make_spec()
    with starter.locks.held(spec.kernel_id), starter.locks.held(spec.kernel_id, waits=False) as is_held:
        assert not is_held
        late = threading.Thread(target=starter.start, args=(spec,))
        late.start()
        assert starter.start(make_spec()).adopted is False
        starter.there, starter.events = None, []
    late.join(60)
    assert starter.events == ["create"]
