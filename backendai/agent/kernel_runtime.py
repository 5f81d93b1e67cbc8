"""The runtime that an agent's container engine uses for kernels, and what ends at its border."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from backendai.core.errors import UserError
from backendai.core.slots import parse_size
from backendai.wire.capabilities import Capability

# Runtimes whose containers are processes of the machine's own Linux kernel: others cannot share a network.
SHARING_RUNTIMES = frozenset({"runc", "crun", "io.containerd.runc.v2", "nvidia"})
# A virtual machine or a sandbox has a Linux kernel of its own: sockets of the agent and device files do not reach into
# it, and its writes do not all lie in the layer that a saved image is made of.
BEYOND_BORDER = frozenset({Capability.EXECUTION, Capability.DEVICES, Capability.COMMIT, Capability.PUSH})
LEAST_MEMORY = 64 * 2**20  # what a kernel must keep for itself

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_VARIABLE = "BACKENDAI_AGENT_RUNTIME"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime by its name in the engine; empty: the engine's default. ``overhead``: bytes of each kernel's memory
    that the virtual machine around it takes."""

    name: str = ""
    overhead: int = 0

    @property
    def has_border(self) -> bool:
        """Return whether kernels have a Linux kernel of their own."""
        return bool(self.name) and self.name not in SHARING_RUNTIMES

    @property
    def lacks(self) -> frozenset[Capability]:
        """Return the capabilities that do not reach across the border."""
        return BEYOND_BORDER if self.has_border else frozenset()

    def is_known_to(self, info: Mapping[str, object]) -> bool:
        """Return whether the engine that describes itself so can use it. Names of shims are not listed by engines."""
        known = info.get("Runtimes")
        return not self.name or "." in self.name or (isinstance(known, Mapping) and self.name in known)


USUAL_RUNTIME = Runtime()


def read_runtime(environ: Mapping[str, str]) -> Runtime:
    """Return the runtime of the settings. Raises UserError."""
    name, overhead = environ.get(_VARIABLE, ""), environ.get(f"{_VARIABLE}_MEMORY", "")
    if name and not _NAME.match(name):
        message = f"{_VARIABLE} is {name!r}: use a name from the engine's list of runtimes, such as kata or runsc."
        raise UserError(message, field=_VARIABLE)
    return Runtime(name, parse_size(overhead, field=f"{_VARIABLE}_MEMORY") if overhead else 0)
