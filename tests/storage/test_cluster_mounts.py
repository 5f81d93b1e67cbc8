"""Every kernel of a cluster session mounts the same folders: portal, agent and native kernels together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.mounts.hosts import StorageHosts
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.spec import MountRequest
from tests.agent.contract_tools import ended_of
from tests.agent.prerequisites import need_program
from tests.cast import Cast
from tests.factories import make_agent, make_session, place
from tests.mount_tools import folder_on_disk, ready_folder, root_on_disk, storage_host

OWNER = 1000 if os.geteuid() == 0 else os.geteuid()


@pytest.mark.django_db
def test_every_kernel_of_a_cluster_reads_and_writes_the_same_folders(cast: Cast, tmp_path: Path) -> None:
    need_program("bwrap", "bubblewrap")
    agent = make_agent()
    host = storage_host("local", agent)
    root = root_on_disk(tmp_path / "storage", deployment="test", uid=OWNER)
    read, written = (ready_folder(cast.alice, name, host=host) for name in ("corpus", "results"))
    (folder_on_disk(root, read.pk, uid=OWNER) / "text").write_text("hello")
    results = folder_on_disk(root, written.pk, uid=OWNER)
    wishes = (MountRequest("corpus", target="/data/corpus", rights="view"), MountRequest("results"))
    command = "cp /data/corpus/text $(uname -n); touch /data/corpus/x 2>>$(uname -n)"
    session = make_session(
        cast.alice, mounts=wishes, cluster_size=3, session_type="batch", startup_command=command, start_in="results"
    )
    place(session, agent)
    backend = NativeBackend(
        tmp_path / "agent", deployment="test", agent="n1", hosts=StorageHosts({"local": root}, (), "test")
    )
    try:
        for kernel in session.kernels.all():
            told = {"image": IMAGE, "deployment": "test", "agent": "n1", "command": command}
            backend.start(spec_for(agent, kernel.pk).model_copy(update=told))
        for kernel in session.kernels.all():
            ended_of(backend, kernel.pk)
    finally:
        for kernel in session.kernels.all():
            backend.remove(kernel.pk)
        backend.close()
    names = {kernel.hostname for kernel in session.kernels.all()}
    assert len(names) == 3 and {path.name for path in results.iterdir()} == names
    for path in results.iterdir():
        assert path.read_text().startswith("hello") and "Read-only file system" in path.read_text()
