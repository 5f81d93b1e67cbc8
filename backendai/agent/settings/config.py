"""Reads all settings of an agent from its environment and command line."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backendai.agent.settings.kernel_runtime import USUAL_RUNTIME, Runtime, read_runtime
from backendai.agent.settings.kubernetes import PoolSettings, read_pool
from backendai.agent.settings.marks import BACKENDS
from backendai.agent.settings.qemu import QemuSettings, read_machines
from backendai.base.core.errors import UserError
from backendai.base.core.slots import MILLI, Slots, parse_amount, parse_size
from backendai.base.paths.installation import data_folder
from backendai.base.process.metrics_access import NOBODY, Scrapers, read_scrapers

_LEAST_RESERVE = 512 * 2**20
_RESERVE_PERCENT = 5
_DISK_RESERVE_PERCENT = 5.0
_WARM_NETWORKS, _MOST_WARM_NETWORKS = 16, 64
_USAGE_SECONDS = 10.0
SERVING_GRACE = 30.0
_MPS_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - the default of NVIDIA's daemon
_HOST = re.compile(r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\Z")
_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One agent's settings. An empty string or None means "not set": the join or the machine determines the value."""

    name: str
    data: Path
    portal_url: str
    join_token: str
    backend: str
    slots: Slots | None
    reserve_cpu: int  # thousandths of a core
    reserve_mem: int | None  # bytes
    disk_reserve: float  # percent of free space on the disks of images and homes, below which no image is pulled
    gateway_host: str
    gateway_port: int
    gateway_url: str
    sync_interval: float | None  # seconds; None: the portal's value
    usage_interval: float  # seconds between measurements of kernels; 0: none
    broker_url: str
    docker_url: str | None
    warm_networks: int  # networks that the Docker backend prepares for the next single-kernel sessions
    cuda: str  # allocation of NVIDIA GPUs: device, shares, off
    rocm: str  # allocation of AMD GPUs: device, off
    environments: Path | None  # folder of native sessions' Python environments; None: no environments
    mps_pipe: Path | None  # folder of the MPS daemon, which enforces shares; None: no MPS
    storage_hosts: Mapping[str, Path]  # paths of storage hosts on this machine, by name
    linked_paths: tuple[Path, ...]  # paths below which existing directories can become folders
    serves_natively: bool  # allows native processes as replicas; all users of this machine reach their ports
    serving_grace: float  # seconds that open requests to endpoints get when the agent stops
    time_scale: float  # real seconds per second of simulated kernels
    runtime: Runtime = USUAL_RUNTIME  # of the Docker backend
    pool: PoolSettings = field(default_factory=PoolSettings)  # of the Kubernetes backend
    machines: QemuSettings = field(default_factory=QemuSettings)  # of the QEMU backend
    scrapers: Scrapers = NOBODY  # who may read the metrics at the gateway

    def offered(self, machine: Slots) -> Slots:
        """Return the amounts that the portal may allocate of ``machine``: without the reserve, or as set."""
        total_mem = machine["mem"] // MILLI
        reserve = self.reserve_mem
        if reserve is None:
            reserve = max(_LEAST_RESERVE, total_mem * _RESERVE_PERCENT // 100)
        amounts = dict(machine)
        amounts["cpu"] = max(0, machine["cpu"] - self.reserve_cpu)
        amounts["mem"] = max(0, total_mem - reserve) * MILLI
        if self.slots is not None:
            amounts.update(self.slots)
        return Slots(amounts)


def read_settings(environ: Mapping[str, str], told: Mapping[str, object]) -> NodeSettings:
    """Return the settings; ``told`` (command line) overrides ``environ``. Raises UserError for an invalid value."""

    def text(option: str, variable: str, default: str = "") -> str:
        value = told.get(option)
        return str(value) if value not in (None, "") else environ.get(variable, "") or default

    name = _check_name(text("name", "BACKENDAI_AGENT_NAME", _slug(socket.gethostname())))
    return NodeSettings(
        name=name,
        data=Path(text("data", "BACKENDAI_AGENT_DATA", str(data_folder(environ) / "agents" / name))).absolute(),
        portal_url=_check_portal(text("join", "BACKENDAI_PORTAL_URL").rstrip("/")),
        join_token=text("token", "BACKENDAI_JOIN_TOKEN"),
        backend=_check_backend(text("backend", "BACKENDAI_AGENT_BACKEND", "auto")),
        slots=_parse_slots(said) if (said := environ.get("BACKENDAI_AGENT_SLOTS", "")) else None,
        reserve_cpu=parse_amount("cpu", environ.get("BACKENDAI_AGENT_RESERVE_CPU", "") or "0", field="reserve.cpu"),
        reserve_mem=_parse_reserve(environ),
        disk_reserve=_parse_disk_reserve(environ),
        gateway_host=text("gateway_host", "BACKENDAI_GATEWAY_HOST"),
        gateway_port=_parse_port(text("gateway_port", "BACKENDAI_GATEWAY_PORT", "0")),
        gateway_url=environ.get("BACKENDAI_GATEWAY_URL", "").rstrip("/"),
        sync_interval=_parse_number(environ, "BACKENDAI_SYNC_INTERVAL", default=0.0, least=0.0, most=60.0) or None,
        usage_interval=_parse_usage_interval(environ),
        broker_url=environ.get("REDIS_URL", ""),
        docker_url=environ.get("DOCKER_HOST") or None,
        warm_networks=_parse_count(environ.get("BACKENDAI_AGENT_WARM_NETWORKS", "")),
        cuda=_check_choice(environ, "BACKENDAI_AGENT_CUDA", ("device", "shares", "off")),
        rocm=_check_choice(environ, "BACKENDAI_AGENT_ROCM", ("device", "off")),
        environments=_parse_environments(environ),
        mps_pipe=_parse_pipe(environ.get("BACKENDAI_AGENT_MPS_PIPE", "")),
        storage_hosts=parse_storage_hosts(environ.get("BACKENDAI_STORAGE_HOSTS", "")),
        linked_paths=_parse_paths(environ, "BACKENDAI_FILES_LINKED_PATHS"),
        serves_natively=_serves(environ),
        serving_grace=_parse_number(environ, "BACKENDAI_SERVING_GRACE", default=SERVING_GRACE, least=0.0, most=600.0),
        time_scale=_parse_number(environ, "BACKENDAI_SIMULATED_TIME_SCALE", default=1.0, least=0.0, most=1000.0),
        runtime=read_runtime(environ),
        pool=read_pool(environ),
        machines=read_machines(environ),
        scrapers=read_scrapers(environ),
    )


def _slug(hostname: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", hostname.lower()).strip("-")[:63].strip("-") or "node"


def _check_name(name: str) -> str:
    if not _NAME.match(name):
        raise UserError(f"{name!r} is not an agent name: use a-z, 0-9 and dashes, at most 63.", field="name")
    return name


def _check_portal(address: str) -> str:
    """Return the address if it has a scheme. Raises UserError: the agent would retry an address without one for
    ever."""
    if address and not re.match(r"https?://[^/\s]", address):
        message = f"{address!r} is not the address of a portal: use http://host:port or https://host."
        raise UserError(message, field="BACKENDAI_PORTAL_URL")
    return address


def _check_backend(name: str) -> str:
    if name not in BACKENDS:
        raise UserError(f"{name!r} is not a backend: use {', '.join(BACKENDS)}.", field="backend")
    return name


def _serves(environ: Mapping[str, str]) -> bool:
    return _check_choice(environ, "BACKENDAI_AGENT_NATIVE_SERVING", ("no", "yes")) == "yes"


def _check_choice(environ: Mapping[str, str], variable: str, choices: tuple[str, ...]) -> str:
    """Return the variable's value, or the first choice if it is not set. Raises UserError for other values."""
    chosen = environ.get(variable, "") or choices[0]
    if chosen not in choices:
        raise UserError(f"{variable} is {chosen!r}: use {', '.join(choices)}.", field=variable)
    return chosen


def _parse_pipe(text: str) -> Path | None:
    if text and text != "off" and not text.startswith("/"):
        message = f"BACKENDAI_AGENT_MPS_PIPE is {text!r}: use a folder that begins with /, or off."
        raise UserError(message, field="BACKENDAI_AGENT_MPS_PIPE")
    return None if text == "off" else Path(text or _MPS_PIPE)


def _parse_usage_interval(environ: Mapping[str, str]) -> float:
    return _parse_number(environ, "BACKENDAI_AGENT_USAGE_INTERVAL", default=_USAGE_SECONDS, least=0.0, most=600.0)


def _parse_reserve(environ: Mapping[str, str]) -> int | None:
    told = environ.get("BACKENDAI_AGENT_RESERVE_MEM", "")
    return parse_size(told, field="reserve.mem", typed=True) if told else None


def _parse_disk_reserve(environ: Mapping[str, str]) -> float:
    return _parse_number(environ, "BACKENDAI_AGENT_DISK_RESERVE", default=_DISK_RESERVE_PERCENT, least=0.0, most=90.0)


def _parse_environments(environ: Mapping[str, str]) -> Path | None:
    text = environ.get("BACKENDAI_AGENT_ENVIRONMENTS", "")
    if text and text != "off" and not text.startswith("/"):
        message = f"BACKENDAI_AGENT_ENVIRONMENTS is {text!r}: use a folder that begins with /, or off."
        raise UserError(message, field="BACKENDAI_AGENT_ENVIRONMENTS")
    return None if text == "off" else Path(text or data_folder(environ) / "environments").absolute()


def parse_storage_hosts(text: str) -> dict[str, Path]:
    """Return the path of each storage host from ``name=/path,…``. Raises UserError."""
    found: dict[str, Path] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, path = part.partition("=")
        if not _HOST.match(name) or not path.startswith("/") or name in found:
            message = f"BACKENDAI_STORAGE_HOSTS has {part!r}: use name=/path, each name once, separated by commas."
            raise UserError(message, field="BACKENDAI_STORAGE_HOSTS")
        found[name] = Path(path)
    return found


def _parse_paths(environ: Mapping[str, str], variable: str) -> tuple[Path, ...]:
    paths = tuple(Path(part.strip()) for part in environ.get(variable, "").split(",") if part.strip())
    if wrong := next((path for path in paths if not path.is_absolute() or ".." in path.parts), None):
        raise UserError(f"{variable} has {str(wrong)!r}: use absolute paths, separated by commas.", field=variable)
    return paths


def _parse_slots(text: str) -> Slots:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    amounts = {name.strip(): amount.strip() for name, _, amount in pairs}
    return Slots.parse(amounts, field="BACKENDAI_AGENT_SLOTS", typed=True)


def _parse_port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise UserError(f"{text!r} is not a port: use 0 to 65535.", field="gateway_port")
    return int(text)


def _parse_count(text: str) -> int:
    if not text:
        return _WARM_NETWORKS
    if not (text.isascii() and text.isdigit()) or int(text) > _MOST_WARM_NETWORKS:
        message = f"BACKENDAI_AGENT_WARM_NETWORKS is {text!r}: use 0 to {_MOST_WARM_NETWORKS}."
        raise UserError(message, field="BACKENDAI_AGENT_WARM_NETWORKS")
    return int(text)


def _parse_number(environ: Mapping[str, str], variable: str, *, default: float, least: float, most: float) -> float:
    text = environ.get(variable, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise UserError(f"{variable} is {text!r}: use {least:g} to {most:g}.", field=variable)
    return number
