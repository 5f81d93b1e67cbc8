"""The services that an image declares in its label, such as ``jupyterlab:http:[8888],ring:tcp:9000``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message

REPLICA_SERVICE = "serving"  # name in tickets for the port of an endpoint's replica
LABEL = "ai.backend.service-ports"
NATIVE_SERVICES = "jupyterlab:http:[8888],jupyter:http:[8889]"  # services of the Python environment of native sessions
_ENTRY = re.compile(r"([^:,\[\]]+):([^:,\[\]]+):(?:\[([0-9,\s]*)\]|([0-9]+))(?:,|$)")
# A service's name becomes part of a host name.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?\Z")
_PROTOCOLS = frozenset({"http", "tcp", "preopen", "internal", "vnc", "rdp"})
_ENTRIES = re.compile(r",(?![^\[]*\])")  # commas outside of brackets
_LEAST, _MOST = 1025, 65534
LEAST_PREOPEN, LARGEST_PREOPEN = 1024, 65535
MOST_PREOPEN = 20
RESERVED_PORTS = frozenset({2000, 2001, 2002, 2003, 2200, 7681})


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One service of an image, with one port or more in ``ports``."""

    name: str
    protocol: str
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        """The first port of the service."""
        return self.ports[0]


def is_service_name(text: str) -> bool:
    """Return whether the text is allowed as the name of a service."""
    return _NAME.match(text) is not None


def service_ports_of(labels: Mapping[str, str]) -> list[ServicePort]:
    """Return the services that the image's labels declare, in order. Invalid entries and repeated names or ports are
    skipped."""
    found: list[ServicePort] = []
    names: set[str] = set()
    taken: set[int] = set(RESERVED_PORTS)
    for name, protocol, several, one in _ENTRY.findall(labels.get(LABEL, "")):
        entry = _read(name.strip(), protocol.strip(), several or one)
        if entry and entry.name not in names and not taken & set(entry.ports):
            found.append(entry)
            names.add(entry.name)
            taken |= set(entry.ports)
    return found


def read_service_ports(text: str) -> list[ServicePort]:
    """Return the services in user input. Raises UserError that quotes the invalid entry."""
    found = service_ports_of({LABEL: text})
    entries = [entry.strip() for entry in _ENTRIES.split(text.strip()) if entry.strip()]
    for entry in entries:
        if len(service_ports_of({LABEL: entry})) != 1:
            raise UserError(
                "{entry} is not a service: write name:protocol:port with a protocol of {protocols} and a "
                "port from {least} to {most} that is not reserved.",
                entry=repr(entry[:64]),
                protocols=sorted(_PROTOCOLS),
                least=_LEAST,
                most=_MOST,
                field="services",
                code="invalid-services",
            )
    if len(found) != len(entries):
        raise UserError("A name or a port appears twice.", field="services", code="invalid-services")
    return found


def check_preopen_ports(ports: Sequence[int], services: Iterable[ServicePort]) -> None:
    """Validate the extra ports of a session. Raises UserError that names the first invalid one."""
    if len(ports) > MOST_PREOPEN:
        raise UserError(
            "At most {most_preopen} ports ({number} given).",
            most_preopen=MOST_PREOPEN,
            number=len(ports),
            field="preopen_ports",
            code="too-many-ports",
        )
    taken = {port: service.name for service in services for port in service.ports}
    for place, port in enumerate(ports):
        why = ""
        if not LEAST_PREOPEN <= port <= LARGEST_PREOPEN:
            why = Message(
                "is not between {least_preopen} and {largest_preopen}",
                least_preopen=LEAST_PREOPEN,
                largest_preopen=LARGEST_PREOPEN,
            )
        elif port in RESERVED_PORTS:
            why = Message("belongs to the platform")
        elif port in taken:
            why = Message("belongs to the image's {taken}", taken=taken[port])
        elif port in ports[:place]:
            why = Message("is named twice")
        if why:
            raise UserError("Port {port} {why}.", port=port, why=why, field="preopen_ports", code="invalid-port")


def preopen_service(port: int) -> ServicePort:
    """Return an extra port of a session as a service."""
    return ServicePort(f"port-{port}", "preopen", (port,))


def _read(name: str, protocol: str, ports: str) -> ServicePort | None:
    numbers = tuple(int(part) for part in ports.split(",") if part.strip() and len(part.strip()) <= 5)
    if not _NAME.match(name) or protocol not in _PROTOCOLS or not numbers:
        return None
    if not all(_LEAST <= number <= _MOST for number in numbers):
        return None
    return ServicePort(name, protocol, numbers)
