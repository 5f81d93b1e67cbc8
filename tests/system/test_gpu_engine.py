"""GPUs on an engine that has a hook like NVIDIA's: what a session asked for is what it sees, and nothing else."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import APIClient

from backendai.agent.accelerators.inventory import Accelerators
from backendai.agent.backends.docker.backend import DockerBackend
from tests.agent.accelerators.known_gpus import TwoGpus
from tests.agent.docker_tools import shell
from tests.agent.specs import make_spec
from tests.system.engine import PrivateEngine
from tests.system.images import TINY
from tests.system.test_engine_kill import need_root_and_programs

pytestmark = [pytest.mark.system, pytest.mark.docker]

# Engines call it before a container's first process, with the container's state. NVIDIA's own makes the device files of
# the GPUs that the container's variable names, no matter which side set it; so does this one, with files that
# are /dev/null inside.
HOOK = """#!{python} -IS
import json, subprocess, sys
from pathlib import Path
state = json.load(sys.stdin)
config = json.loads(Path(state["bundle"], "config.json").read_text())
environ = dict(word.split("=", 1) for word in config["process"]["env"])
asked = environ.get("NVIDIA_VISIBLE_DEVICES", "void")
gpus = {{"all": ["GPU-0", "GPU-1"], "void": []}}.get(asked, asked.split(","))
for gpu in gpus:
    path = Path(config["root"]["path"], "dev", "nvidia" + gpu.removeprefix("GPU-"))
    subprocess.run(["nsenter", "-t", str(state["pid"]), "-m", "mknod", "-m", "666", path, "c", "1", "3"], check=True)
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[PrivateEngine]:
    need_root_and_programs()
    programs = tmp_path / "programs"
    programs.mkdir()
    hook = programs / "nvidia-container-runtime-hook"
    hook.write_text(HOOK.format(python=sys.executable))
    hook.chmod(0o755)
    with PrivateEngine(Path(tempfile.mkdtemp(prefix="backendai-engine-")), programs=programs) as engine:
        yield engine


def test_a_session_sees_the_gpus_that_it_was_given_and_no_others(engine: PrivateEngine, tmp_path: Path) -> None:
    accelerators = Accelerators([TwoGpus()])
    accelerators.look()
    client = APIClient(base_url=engine.url)
    backend = DockerBackend(
        tmp_path / "n1", deployment="gpus", agent="n1", docker_url=engine.url, accelerators=accelerators
    )
    seen = {}
    for given in ("GPU-1", "", "GPU-0 GPU-1"):
        spec = make_spec(
            deployment="gpus",
            image=TINY,
            devices={"cuda.device": dict.fromkeys(given.split(), "1")} if given else {},
            environ={"NVIDIA_VISIBLE_DEVICES": "all"},
        )
        backend.start(spec)
        _, told = shell(client, spec.kernel_id, "cd /dev; ls -d nvidia* 2>/dev/null; echo $NVIDIA_VISIBLE_DEVICES")
        seen[given] = told.split()
        backend.remove(spec.kernel_id)
    backend.close()
    client.close()
    assert seen == {
        "GPU-1": ["nvidia1", "GPU-1"],
        "": ["void"],
        "GPU-0 GPU-1": ["nvidia0", "nvidia1", "GPU-0,GPU-1"],
    }
