"""SSH on the whole platform: all one's folders from nothing, one file seen from everywhere, a key that is deleted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import patient, until
from tests.system.client import Body, Client
from tests.system.images import ensure_tiny
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(600)]


class Here:
    """A platform, its administrator by REST and by SSH, and the folder ``data``."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform, self.client, self.local = platform, platform.client, folder
        found = re.search(r"ssh -p (\d+) SESSION@", platform.logs())
        assert found, platform.logs()
        self.port, self.key = found[1], folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        self.key_id = self.client.post("me/ssh-keys/", {"public_key": Path(f"{self.key}.pub").read_text()})["id"]
        made = self.client.post("folders/", {"name": "data"})
        until(lambda: self.client.folder(made["id"])["is_reachable"], 60, "an agent mounts the folder")
        self.folder = made["id"]

    def words(self, program: str, *more: str) -> list[str]:
        """Return the beginning of a command of OpenSSH."""
        options = {"IdentityFile": self.key, "IdentitiesOnly": "yes", "BatchMode": "yes"}
        options |= {"UserKnownHostsFile": self.local / "known", "StrictHostKeyChecking": "accept-new"}
        port = "-p" if program == "ssh" else "-P"
        return [program, "-F", "none", port, self.port, *(f"-o{key}={value}" for key, value in options.items()), *more]

    def run(self, program: str, *more: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of OpenSSH to its end."""
        command = self.words(program, *more)
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=patient(60), check=False)


@pytest.fixture(scope="module", params=["process", "docker"])
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    if request.param == "docker":
        ensure_tiny()
    two_gates = {"BACKENDAI_SSH_PROCESSES": "2"}
    with Platform(tmp_path_factory.mktemp("ssh"), backend=request.param, extra=two_gates) as platform:
        yield Here(platform, tmp_path_factory.mktemp("client"))
        assert "Traceback" not in platform.logs()


def image_of(here: Here) -> str:
    return "tiny" if here.platform.containers_are_used else "python"


def allocated(client: Client) -> list[Body]:
    return [{slot: one for slot, one in agent["occupied"].items() if slot != "mem"} for agent in client.agents()]


def test_all_folders_open_from_nothing_and_cost_no_quota(here: Here) -> None:
    before, limits = allocated(here.client), here.client._get("me/limits/").json()
    (here.local / "model").write_text("weights")
    done = here.run("sftp", "-b", "-", "folders@127.0.0.1", given=f"put {here.local}/model data/model\nls data\n")
    assert done.returncode == 0 and "model" in done.stdout, done
    system = [one for one in here.client.sessions() if one["type"] == "system"]
    assert len(system) == 1 and system[0]["status"] == "RUNNING"
    assert here.run("sftp", "-b", "-", "folders@127.0.0.1", given="ls data\n").returncode == 0
    assert here.run("ssh", "folders@127.0.0.1", "id").returncode != 0
    assert here.client._get("me/limits/").json() == limits
    if here.platform.containers_are_used:
        here.platform.audit()
    here.client.end(system[0]["id"])
    assert allocated(here.client) == before
    here.platform.audit()


def test_one_file_is_the_same_from_everywhere(here: Here) -> None:
    session = here.client.launch("train", image=image_of(here), mounts=[{"folder": "data"}])
    here.client.wait_until_running(session["id"])
    told = here.run("ssh", "train@127.0.0.1", "echo by-ssh > data/seen; cat data/model; exit 3")
    assert (told.returncode, told.stdout) == (3, "weights"), told
    listed = here.client._get(f"folders/{here.folder}/entries/").json()["entries"]
    assert {"model", "seen"} <= {one["name"] for one in listed}
    with here.client.terminal(session["id"]) as terminal:
        terminal.run("cat ~/data/seen", "by-ssh")
    fetched = here.run("sftp", "-b", "-", "train@127.0.0.1", given=f"get data/seen {here.local}/back\n")
    assert fetched.returncode == 0 and (here.local / "back").read_text() == "by-ssh\n"
    here.client.end(session["id"])


def test_many_wrong_keys_open_nothing_and_shut_nobody_out_afterwards(here: Here) -> None:
    session = here.client.launch("besieged", image=image_of(here))
    here.client.wait_until_running(session["id"])
    wrong = here.local / "wrong"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", wrong], check=True)
    command = [str(word).replace(f"={here.key}", f"={wrong}") for word in here.words("ssh", "besieged@127.0.0.1", "id")]
    # More than eight from one address are not heard at all before they have signed in.
    tries = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(30)]
    for one in tries:
        out, _ = one.communicate(timeout=patient(60))
        assert (one.returncode, out) == (255, b"")
    right = here.run("ssh", "besieged@127.0.0.1", "echo here")
    assert right.stdout == "here\n", right
    here.client.end(session["id"])


def test_logins_go_on_while_one_of_two_gates_is_killed(here: Here) -> None:
    session = here.client.launch("two-gates", image=image_of(here))
    here.client.wait_until_running(session["id"])
    gates = [one for one in here.platform.processes() if "sshgate" in one.cmdline()]
    assert len(gates) == 2
    os.kill(gates[0].pid, signal.SIGKILL)
    gates[0].wait(patient(5))  # the system resets what waits in its queue
    for _ in range(10):
        right = here.run("ssh", "two-gates@127.0.0.1", "echo here")
        assert right.stdout == "here\n", right
    until(lambda: len([one for one in here.platform.processes() if "sshgate" in one.cmdline()]) == 2, 30, "two again")
    here.client.end(session["id"])


def test_a_deleted_key_cuts_what_it_transfers(here: Here) -> None:
    session = here.client.launch("cut-me", image=image_of(here))
    here.client.wait_until_running(session["id"])
    command = here.words("ssh", "cut-me@127.0.0.1", "while true; do echo more; sleep 0.1; done")
    transfer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert transfer.stdout is not None and transfer.stdout.readline() == "more\n"
        answer = here.client._send("DELETE", f"me/ssh-keys/{here.key_id}/")
        assert answer.status_code in (200, 204), answer.text
        deleted_at = time.monotonic()
        transfer.wait(patient(10))
        assert time.monotonic() - deleted_at <= 5
    finally:
        transfer.kill()
        transfer.communicate()
    assert here.run("ssh", "cut-me@127.0.0.1", "true").returncode == 255
    here.client.end(session["id"])
    here.platform.audit()
