"""The accelerators of an agent in a process of their own, for tests: the library that they load is chosen before it
starts. Each line of input is a question as JSON; each line of output its answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from backendai.agent.accelerators.base import Accelerator
from backendai.agent.accelerators.cuda import Cuda
from backendai.agent.accelerators.cuda_grant import Mps
from backendai.agent.accelerators.inventory import Accelerators
from backendai.base.core.errors import PlatformError
from backendai.base.wire.messages import KernelSighting
from tests.agent.accelerators.contract import keeps_the_contract
from tests.agent.specs import make_spec


def main() -> None:
    told = json.loads(sys.argv[1])
    mps = Mps(Path(told["mps"]), is_native=told.get("is_native", False)) if told.get("mps") else None
    cuda = Cuda(told.get("offer", "device"), mps=mps, sys=Path(told.get("sys", "/sys")))
    accelerators = Accelerators([cuda], asked={slot: int(amount) for slot, amount in told.get("asked", {}).items()})
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line), cuda, accelerators)
        except PlatformError as error:
            answer = {"code": error.code, "message": error.message}
        print(json.dumps(answer), flush=True)  # noqa: T201
    accelerators.stop()


def _answer(question: dict[str, Any], cuda: Accelerator, accelerators: Accelerators) -> Any:
    if question["do"] == "contract":
        keeps_the_contract(cuda)
        return "kept"
    if question["do"] == "grant":
        grant = accelerators.grant(make_spec(devices=question["devices"]), native=question.get("native", False))
        return {"environ": dict(grant.environ), "host": dict(grant.host), "paths": list(grant.paths)}
    kernels = [
        KernelSighting(kernel_id=UUID(kernel), generation=1, running=True, container_id=container)
        for container, kernel in question.get("kernels", {}).items()
    ]
    accelerators.offer(kernels)
    accelerators.look()
    offer = accelerators.offer(kernels)
    return {
        "devices": dict(offer.devices),
        "capacity": offer.capacity.to_json(),
        "notes": {note.code: note.message for note in offer.notes},
        "samples": {name: sample.model_dump(mode="json") for name, sample in offer.samples.items()},
    }


main()
