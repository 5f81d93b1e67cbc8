"""GPUs of a Kubernetes cluster. Only their number is known; the cluster chooses the GPUs of a kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from backendai.agent.accelerators.base import Accelerator, Device, Found, Grant, MeasuredUse, Part
from backendai.agent.backends.base import BackendError


class PoolGpus(Accelerator):
    """As many devices as ``count`` returns. A granted device stands for any GPU."""

    kind = "cuda"

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._seen = 0

    def discover(self) -> Found:
        with contextlib.suppress(BackendError):  # keep the number while the cluster does not answer
            self._seen = self._count()
        devices = [Device(f"pool-gpu-{number}", "cuda.device", "GPU", number=number) for number in range(self._seen)]
        return Found(tuple(devices), is_present=bool(devices))

    def samples(self, devices: Sequence[Device]) -> dict[str, MeasuredUse]:
        return {}

    def container(self, parts: Sequence[Part]) -> Grant:
        return Grant()

    def native(self, parts: Sequence[Part]) -> Grant:
        return Grant()

    def close(self) -> None:
        """Do nothing."""
