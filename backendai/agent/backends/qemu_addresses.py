"""The addresses inside of virtual machines: outside of them no machine has these."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

from backendai.agent.qemu_settings import GUESTS

_LENGTH = 27  # 32 addresses: QEMU gives a guest the fifteenth
_ROUTES = Path("/proc/net/route")  # device, then destination and mask at these places, low byte first
_DESTINATION, _MASK = 1, 7
# No site has a network of its own that is wider; VPNs write a default route as 0.0.0.0/1 and 128.0.0.0/1.
_WIDEST_OWN = 8


class GuestAddresses:
    """Parts of a network of 256 addresses. Each guest has the first 32 for itself, as if no other guest had them; the
    kernels of one session share the last 32."""

    def __init__(self, guests: IPv4Network = GUESTS) -> None:
        self.guests = guests
        self.outward, *_, self.session = guests.subnets(new_prefix=_LENGTH)
        self.gateway, self.name_server, self.own = self.outward[2], self.outward[3], self.outward[15]

    @property
    def most_kernels(self) -> int:
        """How many kernels a session can have."""
        return self.session.num_addresses - 2

    def of_rank(self, rank: int) -> str:
        """Return the address of a kernel in the network of its session."""
        return str(self.session[rank + 1])


def devices_into(network: IPv4Network, routes: Path = _ROUTES) -> list[str]:
    """Return the network devices behind which this machine reaches addresses of the network; default routes do not
    count, nor parts of them."""
    own = [(device, known) for device, known in _routes(routes) if known.prefixlen >= _WIDEST_OWN]
    found = {device for device, known in own if known.overlaps(network)}
    return sorted(found)


def _routes(path: Path) -> Iterator[tuple[str, IPv4Network]]:
    for line in path.read_text().splitlines()[1:] if path.exists() else ():
        words = line.split()
        destination, mask = (int.from_bytes(bytes.fromhex(words[at]), "little") for at in (_DESTINATION, _MASK))
        yield words[0], IPv4Network((destination, mask.bit_count()))
