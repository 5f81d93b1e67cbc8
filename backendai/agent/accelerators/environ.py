"""Environment variables that describe a kernel's accelerators to its programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backendai.agent.accelerators.base import Grant, Part
from backendai.base.core.slots import decimal_text

_MIB = 2**20

# Some engines grant GPUs by these variables: an "all" from an image or a user would grant every GPU.
_CLOSED = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "", "GPU_COUNT": "0", "N_GPUS": "0"}
NOTHING = Grant(_CLOSED)


def described(parts: Sequence[Part]) -> Mapping[str, str]:
    """Return the variables that describe these parts; without parts, variables that hide all GPUs.

    ``GPU_CONFIG``: ``<device id>=<amount>,…``. ``TF_GPU_MEMORY_ALLOC``: the smallest memory limit of the devices, in
    MiB.
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
