"""The addresses inside virtual machines, which no machine outside has."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

from backendai.agent.settings.qemu import GUESTS

_LENGTH = 27  # 32 addresses; QEMU assigns number 15 to the guest
_ROUTES = Path("/proc/net/route")  # columns: device, and at these indices destination and mask in little endian
_DESTINATION, _MASK = 1, 7
# No site has a network of its own that is wider; VPNs write a default route as 0.0.0.0/1 and 128.0.0.0/1.
_WIDEST_OWN = 8


class GuestAddresses:
    """Parts of a network of 256 addresses. Each guest privately uses the first 32, as all other guests do; the kernels
    of one session share the last 32."""

    def __init__(self, guests: IPv4Network = GUESTS) -> None:
        self.guests = guests
        self.outward, *_, self.session = guests.subnets(new_prefix=_LENGTH)
        self.gateway, self.name_server, self.own = self.outward[2], self.outward[3], self.outward[15]

    @property
    def most_kernels(self) -> int:
        """The largest number of kernels in a session."""
        return self.session.num_addresses - 2

    def of_rank(self, rank: int) -> str:
        """Return the address of the kernel with this rank in its session's network."""
        return str(self.session[rank + 1])


def devices_into(network: IPv4Network, routes: Path = _ROUTES) -> list[str]:
    """Return the devices that this machine's routes use for addresses of the network. Ignores default routes and their
    parts."""
    own = [(device, known) for device, known in _routes(routes) if known.prefixlen >= _WIDEST_OWN]
    found = {device for device, known in own if known.overlaps(network)}
    return sorted(found)


def _routes(path: Path) -> Iterator[tuple[str, IPv4Network]]:
    for line in path.read_text().splitlines()[1:] if path.exists() else ():
        words = line.split()
        destination, mask = (int.from_bytes(bytes.fromhex(words[at]), "little") for at in (_DESTINATION, _MASK))
        yield words[0], IPv4Network((destination, mask.bit_count()))
