"""What is open is cut as soon as it may not go on, for every reason: programs, transfers, and connections at rest."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.system_sessions import open_folders
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.storage.models import FolderGrant
from backendai.gates.gateways.ssh_access import key_of
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session, place, report_of
from tests.mount_tools import ready_folder, storage_host
from tests.patience import patient
from tests.sshgate.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)
_CUT_SECONDS = 10.0  # it is promised in five
_OPEN_SECONDS = 30.0
_BYTES, _KBIT_PER_S = 2**30, 8000  # a transfer of 18 minutes


class Clients:
    """OpenSSH's clients that are open, by the reason that will cut them and by what they do."""

    def __init__(self, here: Stage) -> None:
        self._here, self.open = here, dict[tuple[str, str], subprocess.Popen[bytes]]()

    def shell(self, reason: str, key: Path, name: str) -> None:
        """Start a program, and leave a large file behind for the transfer."""
        command = f"truncate -s {_BYTES} big; echo on; exec sleep 600"
        shell = subprocess.Popen(self._here.ssh(key, name, command), stdout=subprocess.PIPE)
        assert shell.stdout is not None and shell.stdout.readline() == b"on\n"
        self.open[reason, "shell"] = shell

    def transfer(self, reason: str, key: Path, name: str) -> None:
        """Fetch the large file slowly."""
        target = self._here.folder / f"big-{len(self.open)}"
        words = ["scp", *self._here.options(key), "-l", str(_KBIT_PER_S), "-P", str(self._here.port)]
        self.open[reason, "transfer"] = subprocess.Popen([*words, f"{name}@127.0.0.1:big", target])
        _wait(lambda: target.exists() and target.stat().st_size > 0)

    def at_rest(self, reason: str, key: Path, name: str) -> None:
        """Open a connection without a channel."""
        path = self._here.folder / f"master-{len(self.open)}"
        words = self._here.ssh(key, name, "-N", "-M", ControlPath=str(path))
        self.open[reason, "connection at rest"] = subprocess.Popen(words)
        _wait(path.exists)

    def all_cut(self) -> dict[tuple[str, str], bool]:
        """Return which of them ended with an error in time."""
        until = time.monotonic() + patient(_CUT_SECONDS)
        while time.monotonic() < until and any(one.poll() is None for one in self.open.values()):
            time.sleep(0.05)
        return {name: one.poll() not in (None, 0) for name, one in self.open.items()}

    def close(self) -> None:
        """End those that are left."""
        for one in self.open.values():
            one.kill()
            one.communicate(timeout=patient(10))


def _wait(look: Callable[[], bool]) -> None:
    until = time.monotonic() + patient(_OPEN_SECONDS)
    while not look():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def lent(cast: Cast, here: Stage) -> FolderGrant:
    """A folder of Bob's that Alice may change, and her session that opens her folders, with a large file in it."""
    make_group()
    make_image()
    agent = make_agent()
    host = storage_host("local", agent)
    ready_folder(cast.alice, "own", host=host)
    folder = ready_folder(cast.bob, "lent", host=host)
    now = timezone.now()
    grant = FolderGrant.objects.create(
        folder=folder, user=cast.alice, rights="edit", kind="invitation", accepted_at=now, created_at=now
    )
    session = open_folders(cast.alice, now)
    place(session, agent)
    here.run_kernels(session)
    for kernel in session.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="c1"))
    return grant


@pytest.mark.ci
def test_each_reason_cuts_all_that_is_open(cast: Cast, here: Stage, key: Path, lent: FolderGrant) -> None:
    clients, agent, stays = Clients(here), Agent.objects.get(), None
    sessions = {name: make_running_session(cast.alice, agent, name=name) for name in ("train", "ends", "renewed")}
    sessions["theirs"] = make_running_session(cast.bob, make_agent("far"), name="theirs")
    for session in sessions.values():
        here.run_kernels(session)
    kept = here.new_key("kept", cast.alice)
    own = here.folder / "id_renewed"
    own.write_text(key_of(cast.alice, sessions["renewed"])[0])
    own.chmod(0o600)
    reasons: dict[str, tuple[Path, str, Callable[[], object]]] = {
        "a deleted key": (key, "train", lambda: cast.alice.ssh_keys.filter(name="alice").delete()),
        "a deactivated account": (here.new_key("bob", cast.bob), "theirs", lambda: _deactivate(cast)),
        "the session's end": (kept, "ends", lambda: terminate_session(sessions["ends"], cast.alice)),
        "a replaced key": (own, "renewed", lambda: key_of(cast.alice, sessions["renewed"], renew=True)),
        "a folder no longer shared": (kept, "folders", lent.delete),
    }
    try:
        for reason, (by, name, _) in reasons.items():
            if name != "folders":
                clients.shell(reason, by, name)
                clients.transfer(reason, by, name)
            clients.at_rest(reason, by, name)
        clients.shell("nothing", kept, "train")
        stays = clients.open.pop(("nothing", "shell"))
        assert all(one.poll() is None for one in (*clients.open.values(), stays))
        for _, _, revoke in reasons.values():
            revoke()
        cut = clients.all_cut()
        assert cut == dict.fromkeys(clients.open, True)
        assert stays.poll() is None, "a client that nothing was taken from goes on"
        for reason, (by, name, _) in reasons.items():
            if name != "folders":
                assert here.run(by, name, "true").returncode == 255, reason
    finally:
        clients.open |= {("nothing", "shell"): stays} if stays else {}
        clients.close()
        for kernel in (one for session in ComputeSession.objects.all() for one in session.kernels.all()):
            here.backend.remove(kernel.pk)


def _deactivate(cast: Cast) -> None:
    cast.bob.is_active = False
    cast.bob.save()
