"""The container engine as the build uses it: through the docker command line, with output followed line by line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from backendai.base.process.packages import install_command
from images.builder.progress import Failure

REGISTRY_ANSWER_TIMEOUT = 20  # seconds until a registry must have said anything
STANDARD_FOLDERS = ("/usr/bin", "/usr/local/bin")  # searched also when the PATH leaves them out
REGISTRY_ANSWERED = re.compile(r"Pulling from|Pulling fs layer|Status:")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

OnLine = Callable[[str], None]


class Engine:
    """A docker command that can pass secrets to a build, and the engine behind it."""

    def __init__(self, cli: str, log: TextIO) -> None:
        self.cli = cli
        self._log = log
        self.environ = os.environ | {
            "DOCKER_BUILDKIT": "1",
            "BUILDX_BUILDER": "default",  # another builder would not see the images of this engine
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "PATH": f"{Path(cli).parent}:{os.environ.get('PATH', os.defpath)}",
        }

    def labels(self, reference: str) -> dict[str, str] | None:
        """Return the labels of an image on the engine, or None when it is not there."""
        done = _ask(self.cli, "image", "inspect", "--format", "{{json .Config.Labels}}", reference)
        return (json.loads(done.stdout) or {}) if done.returncode == 0 else None

    def image_id(self, reference: str) -> str | None:
        """Return the id of an image on the engine, or None when it is not there."""
        done = _ask(self.cli, "image", "inspect", "--format", "{{.Id}}", reference)
        return done.stdout.strip() if done.returncode == 0 else None

    def remove_replaced(self, image_id: str, reference: str) -> None:
        """Remove an image whose name went to a newer one; Docker keeps it while a container or an image uses it."""
        if self.image_id(reference) != image_id:
            _ask(self.cli, "image", "rm", image_id)

    def free_space(self) -> tuple[Path, int] | None:
        """Return the engine's folder and its free bytes, or None when it is on another machine."""
        root = _ask(self.cli, "info", "--format", "{{.DockerRootDir}}").stdout.strip()
        return (Path(root), shutil.disk_usage(root).free) if root and Path(root).is_dir() else None

    def pull(self, reference: str, on_line: OnLine) -> bool:
        """Fetch an image; False when no registry answers in time or it says no."""
        answered = threading.Event()

        def watch(line: str) -> None:
            if REGISTRY_ANSWERED.search(line):
                answered.set()
            on_line(line)

        code, _ = self.follow(["pull", reference], watch, stop_unless=answered)
        return code == 0

    def build(
        self,
        folder: Path,
        tag: str,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        secrets: Mapping[str, Path],
        on_line: OnLine,
        *,
        fresh: bool = False,
    ) -> tuple[int, list[str]]:
        """Build a folder (``fresh``: every step anew); return the exit status and the end of the output."""
        # The host's network: a mirror or a proxy that this machine reaches, on localhost too, is reached by the build.
        command = ["build", "--progress", "plain", "--network", "host", "--tag", tag]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"]
        for name in PROXY_VARIABLES:
            if name in self.environ:
                command += ["--build-arg", name]
        for name, value in labels.items():
            command += ["--label", f"{name}={value}"]
        for name, path in secrets.items():
            command += ["--secret", f"id={name},src={path}"]
        if fresh:
            command.append("--no-cache")
        return self.follow([*command, str(folder)], on_line)

    def follow(
        self, command: Sequence[str], on_line: OnLine, *, stop_unless: threading.Event | None = None
    ) -> tuple[int, list[str]]:
        """Run a docker command and hand each line of output on, as ``run_command`` does."""
        return run_command([self.cli, *command], self.environ, self._log, on_line, stop_unless)


def find_engine(log: TextIO) -> Engine:
    """Return the first docker command here that reaches an engine and can pass secrets to a build."""
    candidates = _docker_commands()
    if not candidates:
        raise Failure(
            "docker-missing", "There is no docker command here.", f"Install it: {install_command('docker.io')}"
        )
    problem = ""
    for cli in candidates:
        answer = _ask(cli, "version", "--format", "{{.Server.Version}}")
        if answer.returncode != 0:
            problem = problem or answer.stderr.strip()
            continue
        if "--secret" in _ask(cli, "build", "--help").stdout:
            return Engine(cli, log)
    if problem:
        raise Failure("docker-unreachable", f"Docker does not answer: {problem}", _fix_for_access(problem))
    raise Failure(
        "buildkit-missing",
        f"Docker runs, but {' and '.join(candidates)} cannot pass secrets to a build (BuildKit).",
        "Install Docker's buildx plugin (docker-buildx-plugin or docker-buildx), or Debian's docker.io.",
    )


def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: TextIO,
    on_line: OnLine,
    stop_unless: threading.Event | None = None,
) -> tuple[int, list[str]]:
    """Run a command, write its output to the log and hand each line on; return its status and its last 80 lines.

    With ``stop_unless`` it is stopped when the event is not set within the time in which a registry must answer.
    """
    tail: deque[str] = deque(maxlen=80)
    process = subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timer = threading.Timer(REGISTRY_ANSWER_TIMEOUT, _stop, [process, stop_unless])
    if stop_unless is not None:
        timer.start()
    try:
        for line in process.stdout or ():
            log.write(line)
            log.flush()
            tail.append(line.rstrip())
            on_line(line.rstrip())
        return process.wait(), list(tail)
    finally:
        timer.cancel()
        if process.poll() is None:
            _stop(process)
            process.wait()


def _docker_commands() -> list[str]:
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *STANDARD_FOLDERS]
    by_target: dict[str, str] = {}  # /bin/docker and /usr/bin/docker are often the same file
    for folder in folders:
        path = shutil.which("docker", path=folder)
        if path:
            by_target.setdefault(os.path.realpath(path), path)
    return list(by_target.values())


def _ask(cli: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [cli, *arguments]
    environ = os.environ | {"DOCKER_BUILDKIT": "1"}
    try:
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=30)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "no answer within 30 seconds")


def _fix_for_access(problem: str) -> str:
    if "permission denied" in problem:
        return "Allow this account to use Docker (usermod -aG docker NAME, then log in again), or run as root."
    return "Start Docker: systemctl start docker. When it listens elsewhere, set DOCKER_HOST."


def _stop(process: subprocess.Popen[str], unless: threading.Event | None = None) -> None:
    if process.poll() is None and not (unless and unless.is_set()):
        os.killpg(process.pid, signal.SIGTERM)
