"""The processes of a one-machine installation, with their settings."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from backendai.agent.settings.credentials import load_credentials
from backendai.agent.settings.marks import mark_native
from backendai.base.paths.installation import IMPORT_PATH
from backendai.base.process.listeners import in_url, reached_at
from backendai.files.config import DEFAULT_BIND
from backendai.ops.run.child import Program
from backendai.ops.run.warm_parent.parent import NODE, PORTAL
from backendai.settings.environment import number, whole, words

_AGENT_GRACE, _APPS_GRACE = 30.0, 10.0  # and the time that requests to endpoints get
_MOST_WEBSOCKET_BYTES = 2**20  # of one message; browsers send 32 KiB at once
_MOST_CONNECTIONS = 10_000
_MANAGE = (sys.executable, "-m", "backendai.ops.run.manage")
_CELERY = (sys.executable, "-m", "celery", "--quiet", "-A", "backendai.celery")
_FILES_VARIABLES = (
    *("BACKENDAI_STORAGE_HOSTS", "BACKENDAI_FILES_BIND", "BACKENDAI_FILES_LINKED_PATHS", "BACKENDAI_LOG_LEVEL"),
    *("BACKENDAI_METRICS_TOKEN", "BACKENDAI_METRICS_NETWORKS", "BACKENDAI_LOG_FORMAT"),
    *("BACKENDAI_SENTRY_DSN", "BACKENDAI_OTLP_ENDPOINT"),
    *("PATH", "LANG", "LC_ALL", "TZ", "HOME", "PYTHONSAFEPATH"),
)
_FIRST, _SECOND = 0, 1  # agents stop first: they report what they ended while the portal still listens


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of ``bin/up``.

    ``backend`` is decided, never "auto"; ``no_engine`` has the reason and remedy if Docker is missing against
    expectation. ``apps_port`` 0: the one after the portal's. ``may_run_natively``: nobody chose Docker, so a superadmin
    may allow native sessions while no image can be built. ``files_bind``: the address of the file server; ``ssh_port``:
    the port of SSH.
    """

    host: str
    port: int
    data: Path
    agents: int
    backend: str
    no_engine: tuple[str, ...] = ()
    apps_port: int = 0
    may_run_natively: bool = False
    files_bind: str = DEFAULT_BIND
    ssh_port: int = 2200
    demo: bool = False

    @property
    def portal_url(self) -> str:
        """The address under which processes on this machine reach the portal."""
        return f"http://{in_url(reached_at(self.host))}:{self.port}"


def environment(choice: Choice, redis_url: str) -> dict[str, str]:
    """Return the environment variables of every process."""
    return {
        "BACKENDAI_DATA": str(choice.data),
        "BACKENDAI_HOST": choice.host,
        "BACKENDAI_PORT": str(choice.port),
        "BACKENDAI_APPS_PORT": str(choice.apps_port or choice.port + 1),
        "BACKENDAI_SSH_PORT": str(choice.ssh_port),
        "BACKENDAI_PORTAL_URL": os.environ.get("BACKENDAI_PORTAL_URL") or choice.portal_url,
        "BACKENDAI_STORAGE_HOSTS": os.environ.get("BACKENDAI_STORAGE_HOSTS") or f"local={choice.data / 'folders'}",
        "BACKENDAI_FILES_BIND": choice.files_bind,
        "REDIS_URL": redis_url,
        "PYTHONUNBUFFERED": "1",
        **(_of_demo(choice) if choice.demo else {}),
    }


def _of_demo(choice: Choice) -> dict[str, str]:
    """Return what keeps a demonstration off the database of a deployment, whatever ``.env`` says."""
    return {
        "BACKENDAI_DEMO": "1",
        "DATABASE_URL": f"sqlite:///{choice.data / 'portal.sqlite3'}",
        "BACKENDAI_STORAGE_HOSTS": f"local={choice.data / 'folders'}",
    }


def prepare_program() -> Program:
    """Return the program that updates the database and the assets once."""
    return Program("prepare", (*_MANAGE, "prepare"), restart=False, fork_from=PORTAL)


def web_program(choice: Choice) -> Program:
    """Return the web server for pages, REST, agent API and websockets."""
    options = {
        "--host": choice.host,
        "--port": str(choice.port),
        "--http": "backendai.portal.http.timeouts:HttpWithTimeouts",
        "--limit-concurrency": str(_MOST_CONNECTIONS),
        "--ws": "websockets-sansio",
        "--ws-max-size": str(_MOST_WEBSOCKET_BYTES),
        "--ws-per-message-deflate": "false",  # 256 KiB of compressed zeros are 256 MiB
        "--forwarded-allow-ips": ",".join(words("BACKENDAI_PROXIES")),  # without any, uvicorn would believe localhost
        "--timeout-graceful-shutdown": "5",
        "--lifespan": "off",
        "--log-level": "info",
    }
    told = (word for pair in options.items() for word in pair)
    command = (sys.executable, "-m", "uvicorn", "backendai.asgi:application", *told, "--no-access-log")
    return Program("web", command, stop_stage=_SECOND, fork_from=PORTAL)


def apps_program() -> Program:
    """Return the app proxy."""
    grace = _APPS_GRACE + _serving_grace()
    return Program("appproxy", (*_MANAGE, "appproxy"), stop_stage=_SECOND, grace=grace, fork_from=PORTAL)


def ssh_programs() -> list[Program]:
    """Return the SSH gates; several share one port."""
    count = whole("BACKENDAI_SSH_PROCESSES", 1, most=64)
    names = ["sshgate"] if count == 1 else [f"sshgate-{number}" for number in range(1, count + 1)]
    return [Program(name, (*_MANAGE, "sshgate"), stop_stage=_SECOND, fork_from=PORTAL) for name in names]


def files_program(choice: Choice) -> Program:
    """Return the file server of folders. It gets no secret of the portal, as it handles uploads of users."""
    told = {name: os.environ[name] for name in _FILES_VARIABLES if os.environ.get(name)}
    told |= {"BACKENDAI_DATA": str(choice.data), "PYTHONUNBUFFERED": "1", **IMPORT_PATH}
    command = (sys.executable, "-m", "backendai.files")
    return Program("files", command, told, stop_stage=_SECOND, inherit=False)


def control_programs() -> list[Program]:
    """Return the worker of the control passes, and the beat that triggers them."""
    worker = "worker -Q control -P threads -c 4 -n control@%h --without-gossip --without-mingle --loglevel INFO"
    # The schedule is fixed: the scheduler without a file has nothing that a crash can break.
    beat = "beat --scheduler backendai.ops.beat:SteadyScheduler --loglevel WARNING"
    return [
        Program("control", (*_CELERY, *worker.split()), stop_stage=_SECOND, fork_from=PORTAL),
        Program("beat", (*_CELERY, *beat.split()), stop_stage=_SECOND, fork_from=PORTAL),
    ]


def agent_programs(choice: Choice) -> list[Program]:
    """Return the agents of this machine. Agents that have not joined yet get the join token."""
    return [_agent(choice, name) for name in agent_names(choice.agents)]


def agent_names(count: int) -> list[str]:
    """Return ``local`` for one agent, ``local-1`` and so on for several."""
    return ["local"] if count == 1 else [f"local-{number}" for number in range(1, count + 1)]


def image_program(choice: Choice) -> Program:
    """Return the program that builds the platform's own images, and retries failures.

    For native sessions it builds their Python environment instead.
    """
    options = ["--watch", *(["--may-run-natively"] if choice.may_run_natively else [])]
    if choice.backend == "process":
        options += ["--environments", str(environments(choice))]
    return Program("images", (*_MANAGE, "build_images", *options), stop_stage=_FIRST, grace=20.0, fork_from=PORTAL)


def environments(choice: Choice) -> Path | None:
    """Return the folder for the Python environments of native sessions; None: they are off."""
    told = os.environ.get("BACKENDAI_AGENT_ENVIRONMENTS", "")
    return None if told == "off" else Path(told or choice.data / "environments")


def _agent(choice: Choice, name: str) -> Program:
    data = choice.data / "agents" / name
    told = {"BACKENDAI_AGENT_DATA": str(data), "BACKENDAI_AGENT_BACKEND": choice.backend}
    if not choice.may_run_natively:
        mark_native(data, wanted=False)
    token = choice.data / "local-join-token"
    if load_credentials(data) is None and token.exists():
        told["BACKENDAI_JOIN_TOKEN"] = token.read_text().strip()
    shown = "agent" if name == "local" else name.replace("local", "agent")
    command = (*_MANAGE, "agent", "--name", name)  # where ps shows it
    return Program(shown, command, told, stop_stage=_FIRST, grace=_AGENT_GRACE + _serving_grace(), fork_from=NODE)


def demo_programs(choice: Choice) -> list[Program]:
    """Return the simulated machines and the people of a demonstration; nothing without one."""
    parts = ("machines", "people") if choice.demo else ()
    return [
        Program(f"demo-{part}", (*_MANAGE, "demo", part), stop_stage=_FIRST, grace=_AGENT_GRACE, fork_from=PORTAL)
        for part in parts
    ]


def _serving_grace() -> float:
    return number("BACKENDAI_SERVING_GRACE", 30.0, least=0, most=600)
