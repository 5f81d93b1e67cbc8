"""Mock accelerators without hardware, for demonstrations and for tests of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backendai.agent.accelerators.base import Accelerator, Device, Found, Grant, Part, Use
from backendai.base.core.slots import MILLI
from backendai.base.wire.messages import Note

_MODEL = "Mock accelerator"


class Mock(Accelerator):
    """As many devices of each slot as ``amounts`` (thousandths) need. Kernels get the amounts and no real device."""

    kind = "mock"

    def __init__(self, amounts: Mapping[str, int]) -> None:
        self._amounts = dict(amounts)

    def discover(self) -> Found:
        devices = [
            Device(f"MOCK-{slot}-{number}", slot, _MODEL, number=number, mock=True)
            for slot, amount in self._amounts.items()
            for number in range(-(-amount // MILLI))
        ]
        return Found(tuple(devices), (_note(list(self._amounts)),) if devices else (), is_present=bool(devices))

    def samples(self, devices: Sequence[Device]) -> dict[str, Use]:
        return {}

    def container(self, parts: Sequence[Part]) -> Grant:
        return Grant()

    def native(self, parts: Sequence[Part]) -> Grant:
        return Grant()

    def close(self) -> None:
        """Do nothing."""


def _note(slots: Sequence[str]) -> Note:
    return Note(
        code="mock-accelerators",
        message=f"{', '.join(slots)} of this agent exist on paper only: sessions are given them and find none.",
        fix="Take them out of BACKENDAI_AGENT_SLOTS, which then offers what the machine has.",
    )
