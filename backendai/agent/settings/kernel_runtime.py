"""The container runtime of an agent's engine, and the capabilities that it lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from backendai.base.core.errors import UserError
from backendai.base.core.slots import parse_size
from backendai.base.wire.capabilities import Capability

# Runtimes whose containers run under the machine's own Linux kernel; only these can share a network.
SHARING_RUNTIMES = frozenset({"runc", "crun", "io.containerd.runc.v2", "nvidia"})
# A virtual machine or a sandbox has a Linux kernel of its own: sockets of the agent and device files do not reach into
# it, and its writes do not all lie in the layer that a saved image is made of, or in the home that the agent sees.
BEYOND_BORDER = frozenset(
    {Capability.EXECUTION, Capability.DEVICES, Capability.COMMIT, Capability.PUSH, Capability.HOMES}
)
LEAST_MEMORY = 64 * 2**20  # bytes that a kernel has at least, without the overhead

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_VARIABLE = "BACKENDAI_AGENT_RUNTIME"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime by its name in the engine; empty: the engine's default. ``overhead``: bytes of each kernel's memory
    that the virtual machine around the kernel uses."""

    name: str = ""
    overhead: int = 0

    @property
    def has_border(self) -> bool:
        """Whether kernels run under a Linux kernel of their own."""
        return bool(self.name) and self.name not in SHARING_RUNTIMES

    @property
    def lacks(self) -> frozenset[Capability]:
        """The capabilities that need the machine's own Linux kernel and are therefore missing."""
        return BEYOND_BORDER if self.has_border else frozenset()

    def is_known_to(self, info: Mapping[str, object]) -> bool:
        """Return whether an engine with this description can use the runtime. Engines do not list runtimes named by a
        shim."""
        known = info.get("Runtimes")
        return not self.name or "." in self.name or (isinstance(known, Mapping) and self.name in known)


USUAL_RUNTIME = Runtime()


def read_runtime(environ: Mapping[str, str]) -> Runtime:
    """Return the runtime of the settings. Raises UserError."""
    name, overhead = environ.get(_VARIABLE, ""), environ.get(f"{_VARIABLE}_MEMORY", "")
    if name and not _NAME.match(name):
        message = f"{_VARIABLE} is {name!r}: use a name from the engine's list of runtimes, such as kata or runsc."
        raise UserError(message, field=_VARIABLE)
    return Runtime(name, parse_size(overhead, field=f"{_VARIABLE}_MEMORY", typed=True) if overhead else 0)
