"""Ports of native kernels that serve endpoints: each kernel has a loopback address of its own, in its variable HOST.

Every user of the machine can reach them, so an administrator has to allow it.
"""

from __future__ import annotations

from backendai.agent.backends.shared.loopback import ANY_HOST, address_of
from backendai.base.wire.messages import KernelSpec


def address_in(spec: KernelSpec) -> str:
    """Return the kernel's address from ``with_address``; empty if it has none."""
    address = address_of(spec.kernel_id)
    return address if spec.environ.get("HOST") == address else ""


def with_address(spec: KernelSpec) -> KernelSpec:
    """Return the spec with the kernel's own address, if its server would listen on all addresses."""
    if spec.environ.get("HOST") != ANY_HOST:
        return spec
    return spec.model_copy(update={"environ": {**spec.environ, "HOST": address_of(spec.kernel_id)}})
