"""GPUs that tests know without any library, for what comes after finding them."""

from __future__ import annotations

from collections.abc import Sequence

from backendai.agent.accelerators.base import Accelerator, Device, Found, Grant, MeasuredUse, Part
from backendai.agent.accelerators.cuda_grant import Mps, grant_to_container, grant_to_process


class TwoGpus(Accelerator):
    """Two GPUs that no engine here can give away."""

    kind = "cuda"
    count = 2

    def discover(self) -> Found:
        devices = [Device(f"GPU-{number}", "cuda.device", "H200", 2**37, number=number) for number in range(self.count)]
        return Found(tuple(devices), is_present=True)

    def samples(self, devices: Sequence[Device]) -> dict[str, MeasuredUse]:
        return {}

    def container(self, parts: Sequence[Part]) -> Grant:
        return grant_to_container(parts, Mps(None))

    def native(self, parts: Sequence[Part]) -> Grant:
        return grant_to_process(parts)

    def close(self) -> None:
        """Nothing is open."""


class GrantedAnyway(TwoGpus):
    """The same, with a request that any engine can meet instead of the one for GPUs."""

    def container(self, parts: Sequence[Part]) -> Grant:
        grant = super().container(parts)
        null = [{"PathOnHost": "/dev/null", "PathInContainer": "/dev/gpu0", "CgroupPermissions": "rw"}]
        return Grant(grant.environ, {"Devices": null})
