"""Ports of native kernels that serve an endpoint: each has an address of this machine for itself, which it finds in
HOST. Anyone who is on the machine reaches it, too; therefore an administrator has to allow it."""

from __future__ import annotations

from backendai.agent.backends.loopback import ANY_HOST, address_of
from backendai.wire.messages import KernelSpec


def address_in(spec: KernelSpec) -> str:
    """Return the address that a kernel was given by ``with_address``; empty when it has none."""
    address = address_of(spec.kernel_id)
    return address if spec.environ.get("HOST") == address else ""


def with_address(spec: KernelSpec) -> KernelSpec:
    """Return the order with the kernel's own address where its server would listen on all of them."""
    if spec.environ.get("HOST") != ANY_HOST:
        return spec
    return spec.model_copy(update={"environ": {**spec.environ, "HOST": address_of(spec.kernel_id)}})
