"""The variables by which programs learn what accelerators they were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backendai.agent.accelerators.base import Grant, Part
from backendai.core.slots import decimal_text

_MIB = 2**20

# Where an engine gives GPUs to anyone who asks, an image's or a person's own "all" would open them.
_CLOSED = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "", "GPU_COUNT": "0", "N_GPUS": "0"}
NOTHING = Grant(_CLOSED)


def described(parts: Sequence[Part]) -> Mapping[str, str]:
    """Return what a kernel with these parts is told besides what its accelerators add: without any, that it has none.

    ``GPU_CONFIG`` is ``<device id>=<amount>``, separated by commas; ``TF_GPU_MEMORY_ALLOC`` the MiB that it may use of
    the device of which it may use least.
    """
    if not parts:
        return _CLOSED
    memory = [part.memory for part in parts if part.memory]
    told = {
        "GPU_TYPE": parts[0].device.slot.partition(".")[0],
        "GPU_MODEL_NAME": parts[0].device.model,
        "GPU_CONFIG": ",".join(f"{part.device.id}={decimal_text(part.amount)}" for part in parts),
        "GPU_COUNT": str(len(parts)),
        "N_GPUS": str(len(parts)),
    }
    return _CLOSED | told | ({"TF_GPU_MEMORY_ALLOC": str(min(memory) // _MIB)} if memory else {})
