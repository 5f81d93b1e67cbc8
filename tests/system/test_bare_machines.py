"""From a clean clone through ``./bin/up`` to an answer in a terminal, on machines with and without Docker, bubblewrap
and root."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from docker import APIClient

from tests.agent.prerequisites import need_program
from tests.patience import patient, until
from tests.system.bare import (
    Person,
    Start,
    clean_clone,
    make_empty_tables,
    make_environment,
    ordinary_user,
    programs_without,
)
from tests.system.client import Terminal

pytestmark = [pytest.mark.system, pytest.mark.docker]
_AT_ONCE = 2
_WITHOUT_COMMAND = ("docker",)  # the engine is reached by its socket; with the command the platform would build images
_OF_DOCKER = ("docker", "dockerd", "containerd", "runc")


@dataclass(frozen=True)
class Machine:
    """What a machine has, and who starts the platform on it."""

    is_root: bool
    has_docker: bool
    has_bwrap: bool

    def __str__(self) -> str:
        words = {"root": self.is_root, "docker": self.has_docker, "bwrap": self.has_bwrap}
        return "-".join(word if there else f"no-{word}" for word, there in words.items())

    @property
    def has_nothing(self) -> bool:
        """Whether nothing helps. There the first start makes the database, too; the others find its empty tables, which
        cost a processor five seconds each."""
        return not (self.has_docker or self.has_bwrap)

    @property
    def is_below_a_closed_folder(self) -> bool:
        """Whether the clone is in a home like /root; without anything that helps."""
        return self.is_root and self.has_nothing


MACHINES = [Machine(*has) for has in product((True, False), repeat=3)]
# The machine with everything and the machine with nothing; the others run with the long tests: each costs a processor
# half a minute.
OFTEN = {Machine(True, True, True), Machine(False, False, False)}


class Ground:
    """What the machines share: one clone to copy, an environment and the programs for each kind of person."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        clean_clone(folder / "seed")
        self.people = {True: Person(None), False: ordinary_user()}
        for is_root, person in self.people.items():
            if is_root and os.geteuid() != 0:
                continue
            make_environment(folder / f"environment-{is_root}", person, folder / "seed")
        for docker, bwrap in product((True, False), repeat=2):
            absent = (*(_WITHOUT_COMMAND if docker else _OF_DOCKER), *(() if bwrap else ("bwrap",)))
            programs_without(folder / f"programs-{docker}-{bwrap}", absent)
        make_empty_tables(folder / "seed", folder / "empty")

    def start(self, machine: Machine) -> Start:
        """Start the platform in a clone of its own."""
        home = Path(tempfile.mkdtemp(prefix=f"{machine}-", dir=self.folder))  # a repeated walk finds a new one
        home.chmod(0o700 if machine.is_below_a_closed_folder else 0o755)
        person = self.people[machine.is_root]
        without_history = shutil.ignore_patterns(".git")
        shutil.copytree(self.folder / "seed", home / "portal", symlinks=True, ignore=without_history)
        if not machine.has_nothing:
            (home / "portal" / "var").mkdir(mode=0o700)
            shutil.copy(self.folder / "empty" / "portal.sqlite3", home / "portal" / "var")
        (home / "portal" / ".venv").symlink_to(self.folder / f"environment-{machine.is_root}")
        person.give(home)
        path = self.folder / f"programs-{machine.has_docker}-{machine.has_bwrap}"
        return Start(home / "portal", person, path=path, has_docker=machine.has_docker)


@pytest.fixture(scope="module")
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    for program in ("git", "tmux", "setpriv"):
        need_program(program, {"setpriv": "util-linux"}.get(program, program))
    folder = Path(tempfile.mkdtemp(prefix="bare-", dir="/tmp"))
    folder.chmod(0o755)  # ordinary users and kernels pass; what they must not see is closed by itself
    yield Ground(folder)
    # Eight environments of Python: shutil.rmtree needs minutes for their files on a busy disk.
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture(scope="module")
def walks(request: pytest.FixtureRequest, tiny_image: None, ground: Ground) -> Iterator[dict[Machine, Future[None]]]:
    """The walks of all machines that are asked for, some at once: most of each is waiting."""
    asked = [item.callspec.params["machine"] for item in request.session.items if _is_a_walk(item, request)]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        futures = {machine: threads.submit(walk, ground, machine) for machine in asked if _can_be(machine)}
        yield dict(futures)
        for future in futures.values():
            future.cancel()


@pytest.mark.timeout(600)  # the last one removes the environments of all, which takes minutes on a busy disk
@pytest.mark.parametrize(
    "machine", [pytest.param(each, id=str(each), marks=() if each in OFTEN else pytest.mark.long) for each in MACHINES]
)
def test_it_answers_in_a_terminal(machine: Machine, ground: Ground, walks: dict[Machine, Future[None]]) -> None:
    if not _can_be(machine):
        pytest.skip("only root can start the platform as root: run the tests as root")
    try:
        walks.pop(machine).result()
    except KeyError:  # a repeated test walks again
        walk(ground, machine)


def walk(ground: Ground, machine: Machine) -> None:
    """Sign in with the printed password, launch, type; then end it, and look that nothing is left."""
    with ground.start(machine) as start:
        check_welcome(start, machine)
        session = start.client.wait_until_running(start.client.launch(image=start.image)["id"])
        start.answer_in_terminal(session["id"])
        agents = start.client.agents()
        assert [agent["backend"] for agent in agents] == ["docker" if machine.has_docker else "process"]
        assert agents[0]["fault"] == ""
        if machine.is_below_a_closed_folder:
            live_through_a_killed_agent(start, session["id"])
            run_a_second_agent(start)
        else:  # there it ends with the platform
            start.client.end(session["id"])
        outside = start.folders_outside()
    assert not [folder for folder in outside if folder.exists()]
    if machine.has_docker:
        assert not containers_of(start)


def check_welcome(start: Start, machine: Machine) -> None:
    """One line says what is missing, and no line when nothing is."""
    better = start.welcome_line("Better with")
    assert ("Docker" in better) is not machine.has_docker
    if not (machine.has_docker or machine.has_bwrap):
        assert "bubblewrap (a sandbox)" in better


def live_through_a_killed_agent(start: Start, session_id: str) -> None:
    """The session goes on in the same shell, and the next agent answers for it."""
    with start.client.terminal(session_id) as terminal:
        terminal.run("kept=yes; echo set-$((40+2))", "set-42")
    killed = start.agent_pid()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: start.agent_pid() not in (None, killed), 30, "another agent runs")

    def answers() -> bool:
        try:
            with start.client.terminal(session_id) as terminal:
                terminal.run('echo "kept: $kept"', "kept: yes", seconds=5)
        except (*Terminal.BROKEN, OSError, AssertionError):
            return False
        return True

    until(answers, 30, "the shell of before answers")


def run_a_second_agent(start: Start) -> None:
    """An agent that is joined by hand, with a data folder of its own, takes a session and leaves nothing."""
    home = start.clone.parent
    token = start.client.post("join-tokens/", {"resource_group": "default"})["token"]
    words = ("--join", start.url, "--token", token, "--name", "second", "--data", str(home / "second"))
    command = (".venv/bin/python", "manage.py", "agent", *words, "--backend", "process")
    agent = start.spawn(*command, log=home / "second.log")

    def has_joined() -> bool:
        return ("second", "ALIVE") in [(one["name"], one["status"]) for one in start.client.agents()]

    try:
        until(has_joined, 60, "the second agent has joined", last=lambda: (home / "second.log").read_text())
        session = start.client.launch(image=start.image, agents=["second"])
        start.client.wait_until_running(session["id"])
        start.answer_in_terminal(session["id"])
        start.client.end(session["id"])
    finally:
        start.press_ctrl_c(agent)
    assert not (home / "second" / "kernels.json").exists(), (home / "second.log").read_text()


def containers_of(start: Start) -> list[str]:
    """Return the containers that this deployment has left."""
    deployment = json.loads((start.clone / "var" / "secrets.json").read_text())["deployment"]
    engine = APIClient(timeout=patient(60))
    found = engine.containers(all=True, filters={"label": f"backendai.deployment={deployment}"})
    engine.close()
    return [container["Id"] for container in found]


def _can_be(machine: Machine) -> bool:
    return not machine.is_root or os.geteuid() == 0


def _is_a_walk(item: pytest.Item, request: pytest.FixtureRequest) -> bool:
    return item.path == request.path and isinstance(item, pytest.Function) and "machine" in item.callspec.params
