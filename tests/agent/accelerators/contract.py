"""What holds for every accelerator, whether its hardware is there, missing or broken."""

from __future__ import annotations

from backendai.agent.accelerators.base import Accelerator, Part
from backendai.base.core.slots import Slots


def keeps_the_contract(one: Accelerator) -> None:
    """Fail when this accelerator breaks a promise of ``accelerators.base``."""
    found = one.discover()
    again = one.discover()
    assert [(device.id, device.slot) for device in again.devices] == [
        (device.id, device.slot) for device in found.devices
    ]
    ids = [device.id for device in found.devices]
    assert len(set(ids)) == len(ids)
    assert found.is_present or not found.devices
    for device in found.devices:
        assert 0 < len(device.id) <= 64
        assert device.mock or device.slot.startswith(f"{one.kind}.")
        assert Slots.parse({device.slot: 1})
        assert device.memory is None or device.memory > 0
    uses = one.samples(found.devices)
    assert uses.keys() <= set(ids)
    for use in uses.values():
        assert use.util_pct is None or 0 <= use.util_pct <= 100
        assert use.mem_used is None or use.mem_used >= 0
    for device in found.devices:
        for grant in (one.container([Part(device, 1000)]), one.native([Part(device, 1000)])):
            assert all(isinstance(value, str) for value in grant.environ.values())
            assert not set(device.paths) - set(grant.paths) or not grant.paths
        others = [other.id for other in found.devices if other.id != device.id]
        given = str(one.container([Part(device, 1000)]))
        assert not [other for other in others if other in given], "a kernel is told of a device that is not its own"
    one.close()
    one.close()
    assert [device.id for device in one.discover().devices] == ids
    one.close()
