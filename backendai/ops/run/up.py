"""``bin/up``: runs the whole platform on one machine.

It does not load Django, as this process only watches the others.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from backendai.agent.settings.config import read_settings
from backendai.agent.settings.marks import has_run_containers
from backendai.base.core.errors import UserError
from backendai.base.paths.installation import COMMAND, FILES, IS_CLONE, PACKAGE
from backendai.base.process.packages import install_command
from backendai.base.process.slowness import allowed
from backendai.ops.doctor.check import Check
from backendai.ops.doctor.machine import bubblewrap
from backendai.ops.run import data_folder, fleet, valkey
from backendai.ops.run.console import Console
from backendai.ops.run.data_folder import DEMO_MARK, FirstAdmin, StartRefused, demo_folder
from backendai.ops.run.engine import NoEngine, ask_engine, engine_is_expected
from backendai.ops.run.fleet import Choice
from backendai.ops.run.options import BACKEND, HOST, LAST_PORT, NAME, PORT, option_parser
from backendai.ops.run.ports import PortClaims, apps_port, bind, check_ports, files_bind, listens, ssh_port
from backendai.ops.run.supervisor import StartStopped, Supervisor
from backendai.settings import environment

_VARIABLES = {  # what an agent calls by the names of its options
    "backend": "BACKENDAI_AGENT_BACKEND",
    "gateway_port": "BACKENDAI_GATEWAY_PORT",
    "reserve.cpu": "BACKENDAI_AGENT_RESERVE_CPU",
    "reserve.mem": "BACKENDAI_AGENT_RESERVE_MEM",
}
_VALKEY_TIMEOUT = 30.0
_LOAD_TIMEOUT, _WEB_TIMEOUT = 30.0, 20.0
_SESSIONS, _INDENT = f"{'Compute sessions':<22}", " " * 22
_LESS_THAN_ROOT = [
    f"{_INDENT}The agent is not root: home folders have no size limit, and containers reach services",
    f"{_INDENT}of this machine. The agents page says more.",
]
_SOURCES = (PACKAGE, *(FILES / name for name in ("templates", "locale", "static", "requirements.txt")))


def main(arguments: Sequence[str]) -> int:
    """Run the platform until it is told to stop; returns the exit code."""
    try:
        options = _read(arguments)
        with closing(PortClaims()) as claims:
            choice = _decide(options, claims)
            lock = data_folder.lock(choice.data)
            try:
                check_ports(choice, claims)
                os.chdir(FILES if IS_CLONE else choice.data)
                own = nullcontext() if os.environ.get("REDIS_URL") else valkey.own_socket(choice.data)
                terminal = Console(verbose=options.verbose)
                with own as address, Supervisor(choice.data / "logs", terminal=terminal) as supervisor:
                    _run(supervisor, choice, address)
            finally:
                data_folder.say_stopped(choice.data)
                os.close(lock)
    except StartStopped:
        return 0
    except (StartRefused, valkey.NoServer) as refusal:
        print(refusal, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def welcome(choice: Choice, admin: FirstAdmin | None) -> str:
    """Return the text about the ready portal, with the password if the first start has just created it."""
    lines = ["", f"  The portal is ready:  {choice.portal_url}", ""]
    if choice.demo:
        lines += ["  Sign in               with one click, as student, researcher or administrator", ""]
    elif admin:
        lines += [f"  Sign in as            {admin.email}", f"  Password              {admin.password}"]
        lines += ["                        (shown this once; change it on your account page)", ""]
    lines += [f"  {line}" for line in _about_backend(choice)]
    domain = os.environ.get("BACKENDAI_APPS_DOMAIN") or "apps.localhost"
    lines += [f"  Apps of sessions      http://*.{domain}:{choice.apps_port or choice.port + 1}"]
    lines += [f"  SSH into sessions     ssh -p {choice.ssh_port} SESSION@{choice.host}"] if fleet.ssh_programs() else []
    lines += [f"  Data and logs         {choice.data}"]
    if choice.host in ("127.0.0.1", "localhost", "::1") and not choice.demo:
        lines += ["  Other machines        cannot reach it; start with --host 0.0.0.0 to let them"]
    return "\n".join([*lines, "  Stop                  Ctrl-C (a second one stops at once)", ""])


def source_stamp() -> str:
    """Return a digest of the platform's source files. A data folder prepared for another digest is prepared again."""
    return data_folder.fingerprint(_SOURCES)


def settings_stamp() -> str:
    """Return a digest of the settings. After a change they are checked again."""
    told = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("BACKENDAI_"))
    told += [os.environ.get(name, "") for name in ("DATABASE_URL", "REDIS_URL")]
    return hashlib.sha256("\0".join(told).encode(errors="surrogateescape")).hexdigest()


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options. Reads ``.env`` first, which can be in the folder of ``--data``."""
    first = argparse.ArgumentParser(prog=NAME, add_help=False)
    first.add_argument("--data")
    named = first.parse_known_args(arguments)[0].data
    environment.read_dotenv({"BACKENDAI_DATA": str(named)} if named else os.environ)
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    told, whole = os.environ.get, environment.whole
    parser = option_parser()
    parser.set_defaults(
        port=whole("BACKENDAI_PORT", PORT, most=LAST_PORT),
        apps_port=whole("BACKENDAI_APPS_PORT", 0, most=LAST_PORT),
        ssh_port=whole("BACKENDAI_SSH_PORT", 0, most=LAST_PORT),
        host=told("BACKENDAI_HOST") or HOST,
        backend=told("BACKENDAI_AGENT_BACKEND") or BACKEND,
    )
    return parser


def _decide(options: argparse.Namespace, claims: PortClaims) -> Choice:
    if not 1 <= options.port <= LAST_PORT:
        raise StartRefused(f"--port {options.port}: a port is a number from 1 to 65535.")
    if not 0 <= options.apps_port <= LAST_PORT or options.apps_port == options.port:
        raise StartRefused(
            f"--apps-port {options.apps_port}: a port is a number from 1 to 65535, and not the portal's."
        )
    if not 0 <= options.ssh_port <= LAST_PORT or options.ssh_port in (options.port, options.apps_port or -1):
        raise StartRefused(f"--ssh-port {options.ssh_port}: a port is a number from 1 to 65535, and one of its own.")
    if options.agents < 0:
        raise StartRefused(f"--agents {options.agents}: use 0 or more.")
    data = options.data.absolute()
    if options.demo:
        data = demo_folder(data, options.host)
        options.backend, options.agents = "process", 1
    elif (data / DEMO_MARK).exists():
        raise StartRefused(f"{data} holds a demonstration. Start it with --demo, or choose another folder with --data.")
    backend: str = options.backend
    _check_host(options.host)
    if options.agents:
        _check_node(backend)
    no_engine: tuple[str, ...] = ()
    if options.agents and backend in ("auto", "docker"):
        no_engine = _why_no_engine()
        if no_engine and backend == "docker":
            raise StartRefused(f"--backend docker: {'. '.join(no_engine)} Or start without --backend.")
        backend = "process" if no_engine and not _has_run_containers(data) else "docker"
    claims.keep(options.host, options.port, options.apps_port, options.ssh_port)
    apps = options.apps_port or apps_port(claims, options.host, options.port)
    ssh = options.ssh_port or ssh_port(claims, options.host)
    natively = options.backend == "auto" and backend == "docker"
    where = files_bind(claims, options.port)
    return Choice(
        options.host, options.port, data, options.agents, backend, no_engine, apps, natively, where, ssh, options.demo
    )


def _why_no_engine() -> tuple[str, ...]:
    """Return why this user has no Docker Engine, and the remedy; empty if one answers."""
    try:
        ask_engine("/version")
    except NoEngine as error:
        return str(error), error.fix
    return ()


def _check_host(host: str) -> None:
    try:
        bind(host, 0)
    except OSError as error:
        raise StartRefused(
            f"--host {host}: this machine cannot listen there ({error.strerror}). Use one of its own addresses, "
            "127.0.0.1 for this machine only, or 0.0.0.0 for every network."
        ) from error


def _check_node(backend: str) -> None:
    """Raise Refused for settings that the agents of this machine would reject after the start."""
    try:
        read_settings(os.environ, {"name": "local", "backend": backend})
    except UserError as error:
        field = error.field or ""
        variable = _VARIABLES.get(field, field.partition(".")[0])
        named = error.message if variable in error.message else f"{variable}: {error.message}"
        raise StartRefused(f"{named} .env.example says more.") from error


def _has_run_containers(data: Path) -> bool:
    return any(has_run_containers(folder) for folder in (data / "agents").glob("*"))


def _run(supervisor: Supervisor, choice: Choice, address: Path | None) -> None:
    ours = fleet.environment(choice, _broker(supervisor, choice, address))
    data_folder.say_running(choice.data, ours)
    os.environ.update(ours)
    supervisor.load_code(allowed(_LOAD_TIMEOUT))
    _prepare(supervisor, choice)
    supervisor.start(fleet.web_program(choice))
    ready = supervisor.wait_until(lambda: _portal_answers(choice), allowed(_WEB_TIMEOUT))
    for program in [
        fleet.files_program(choice),
        fleet.apps_program(),
        *fleet.ssh_programs(),
        *fleet.control_programs(),
        *fleet.agent_programs(choice),
    ]:
        supervisor.start(program)
    if choice.agents and (choice.backend == "docker" or (choice.backend == "process" and fleet.environments(choice))):
        supervisor.start(fleet.image_program(choice))
    if not ready:
        supervisor.terminal.say(f"The portal does not answer yet; see {choice.data / 'logs' / 'web.log'}")
        supervisor.wait_until(lambda: _portal_answers(choice), math.inf)
    if not supervisor.wait_until(lambda: listens(choice.files_bind), allowed(_WEB_TIMEOUT)):
        supervisor.terminal.say(f"The file server does not answer yet; see {choice.data / 'logs' / 'files.log'}")
    for program in fleet.demo_programs(choice):
        supervisor.start(program)
    supervisor.terminal.say(welcome(choice, data_folder.take_first_admin(choice.data)))
    supervisor.serve()
    supervisor.terminal.say(_farewell(choice))


def _broker(supervisor: Supervisor, choice: Choice, address: Path | None) -> str:
    """Return the address of the broker: REDIS_URL, or a Valkey server that it starts on the socket ``address``."""
    if address is None:
        return os.environ["REDIS_URL"]
    supervisor.start(valkey.valkey_program(valkey.find_server(), choice.data, address))
    if not supervisor.wait_until(lambda: valkey.answers(address), allowed(_VALKEY_TIMEOUT)):
        raise StartRefused(f"Valkey does not answer; see {choice.data / 'logs' / 'valkey.log'}")
    return f"unix://{address}"


def _prepare(supervisor: Supervisor, choice: Choice) -> None:
    stamp = source_stamp() + settings_stamp()
    known_database = (choice.demo or not os.environ.get("DATABASE_URL")) and (choice.data / "portal.sqlite3").exists()
    if known_database and data_folder.is_prepared(choice.data, stamp):
        return
    supervisor.terminal.say(
        "Preparing the database and the assets (after an installation, an update or new settings) ..."
    )
    if code := supervisor.run_once(fleet.prepare_program()):
        raise StartRefused(f"The preparation has failed (exit code {code}); see {choice.data / 'logs' / 'prepare.log'}")
    data_folder.mark_prepared(choice.data, stamp)


def _portal_answers(choice: Choice) -> bool:
    parts = urlsplit(choice.portal_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _about_backend(choice: Choice) -> list[str]:
    if choice.demo:
        return [f"{_SESSIONS}invented, but for those in the group this-machine: native processes of this machine"]
    if not choice.agents:
        return [f"{_SESSIONS}no agent on this machine; join one with: {COMMAND} agent --join URL --token T"]
    if choice.backend == "docker" and choice.no_engine:
        why, fix = choice.no_engine
        told = [f"{_SESSIONS}in Docker containers as before, but Docker is not there: {why}."]
        told += [f"{_INDENT}{fix}", f"{_INDENT}Nothing starts until it answers; containers that run still go on."]
        return [*told, f"{_INDENT}--backend process gives those up and runs native processes instead."]
    if choice.backend == "docker":
        return [f"{_SESSIONS}in Docker containers", *([] if os.geteuid() == 0 else _LESS_THAN_ROOT)]
    if choice.backend == "kubernetes":
        return [f"{_SESSIONS}as pods of a Kubernetes cluster; the agents page says which"]
    if choice.backend == "qemu":
        return [f"{_SESSIONS}as virtual machines of QEMU; the agents page says whether they are emulated"]
    if choice.backend == "simulated":
        return [f"{_SESSIONS}simulated: nothing really runs"]
    told = [f"{_SESSIONS}as native processes, not in containers. Isolation is weaker; the agents page says more."]
    lacking = missing_programs(choice.no_engine)
    return [*told, f"{'Better with':<22}{lacking}"] if lacking else told


def missing_programs(
    no_engine: tuple[str, ...], *, sandbox: Callable[[], Check] = bubblewrap, os_release: Path | None = None
) -> str:
    """Return a line for people whose sessions are native processes; empty if nothing is missing.

    ``no_engine``: why no Docker Engine is used, and the remedy; empty if somebody chose native processes.
    """
    wanted, packages, lines = [], [], []
    if no_engine and engine_is_expected():
        lines.append(f"Docker: {no_engine[0]}. {no_engine[1]}")
    elif no_engine:
        wanted.append("Docker (containers and images)")
        packages.append("docker.io")
    check = sandbox()
    if check.level != "ok" and shutil.which("bwrap"):
        lines.append(f"bubblewrap {check.message}. {check.fix}")
    elif check.level != "ok":
        wanted.append("bubblewrap (a sandbox)")
        packages.append("bubblewrap")
    if wanted:
        command = install_command(*packages, os_release=os_release)
        sudo = "" if os.geteuid() == 0 or command.startswith("install") else "sudo "
        lines.insert(0, f"{' and '.join(wanted)}: {sudo}{command}")
    return "; ".join(lines)


def _farewell(choice: Choice) -> str:
    if choice.agents and choice.backend == "process":
        return "Stopping. Sessions are native processes of this machine and end with the platform."
    kernels = "Virtual machines" if choice.backend == "qemu" else "Containers"
    return f"Stopping. {kernels} go on running; the next start finds them again."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
