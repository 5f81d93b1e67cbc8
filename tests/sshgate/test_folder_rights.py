"""A folder that is shared for viewing: its viewer reads it by SFTP and in a session, and writes it by neither."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backendai.agent.backends.native.backend import NativeBackend
from backendai.agent.mounts.hosts import StorageHosts
from backendai.base.wire.messages import KernelState
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.system_sessions import open_folders
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.requests.mounts import read_mounts
from backendai.domain.compute.spec import MountRequest
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.status import GrantKind, Rights
from tests.agent.prerequisites import need_program
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session, place, report_of
from tests.mount_tools import folder_on_disk, ready_folder, root_on_disk, storage_host
from tests.sshgate.stage import Stage, stage
from tests.storage.test_folders import NOW

pytestmark = pytest.mark.django_db(transaction=True)
OWNER = 1000 if os.geteuid() == 0 else os.geteuid()


@pytest.fixture
def folder(cast: Cast) -> Folder:
    """Alice's folder, which Bob may view."""
    make_group()
    make_image()
    found = ready_folder(cast.alice, "corpus", host=storage_host("local", make_agent()))
    told = {"rights": Rights.VIEW, "kind": GrantKind.INVITATION, "accepted_at": NOW}
    FolderGrant.objects.create(folder=found, user=cast.bob, **told)
    return found


@pytest.fixture
def data(folder: Folder, tmp_path: Path) -> Path:
    found = folder_on_disk(root_on_disk(tmp_path / "storage", deployment="test", uid=OWNER), folder.pk, uid=OWNER)
    (found / "model").write_text("weights")
    return found


@pytest.fixture
def here(data: Path, tmp_path: Path) -> Iterator[Stage]:
    need_program("sftp", "openssh-client")
    need_program("bwrap", "bubblewrap")
    hosts = StorageHosts({"local": tmp_path / "storage"}, (), "test")
    backend = NativeBackend(tmp_path / "agent", deployment="test", agent="n1", hosts=hosts)
    with stage(backend) as found:
        yield found
    backend.close()
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)


def run(here: Stage, session: ComputeSession) -> None:
    """Do the scheduler's and the agent's part of a start, with the mounts that the portal tells the agent."""
    agent = Agent.objects.get()
    place(session, agent)
    mounts = read_mounts([session.pk]).specs_for(session.pk, agent.pk, "main")
    assert [(mount.folder_name, mount.rights) for mount in mounts] == [("corpus", "view")]
    here.run_kernels(session, mounts=mounts)
    for kernel in session.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="c1"))


@pytest.mark.parametrize("way", ["folders", "train"])
def test_a_viewer_reads_a_shared_folder_and_writes_it_by_no_way(cast: Cast, here: Stage, data: Path, way: str) -> None:
    key = here.new_key("bob", cast.bob)
    wish = {"name": "train", "mounts": (MountRequest("corpus"),)}
    run(here, open_folders(cast.bob, NOW) if way == "folders" else make_session(cast.bob, **wish))
    local = here.folder / "local"
    local.write_text("worse")
    for order in (
        *(f"put {local} corpus/model", f"put {local} corpus/new", "rm corpus/model", "mkdir corpus/d"),
        *("rename corpus/model corpus/other", "ln -s model corpus/link", "chmod 777 corpus/model"),
    ):
        batch = here.folder / "batch"
        batch.write_text(f"get corpus/model {here.folder}/back\n{order}\n")
        told = here.copy("sftp", key, "-b", str(batch), f"{way}@127.0.0.1")
        assert (here.folder / "back").read_text() == "weights"
        assert told.returncode == 1 and b"ailure" in told.stderr + told.stdout, (order, told)
    assert here.copy("scp", key, "-O", str(local), f"{way}@127.0.0.1:corpus/new").returncode == 1
    if way == "train":
        inside = here.run(
            key, way, "echo x >corpus/model; rm -f corpus/model; mount -o remount,rw corpus; mkdir corpus/d"
        )
        assert inside.stderr.count(b"Read-only file system") == 3, inside
    assert [(path.name, path.read_text()) for path in data.iterdir()] == [("model", "weights")]
