"""The work of two people that the screenshots show: sessions, a folder, a pipeline, and an endpoint under load."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.browser.visitor import run_on
from tests.patience import until
from tests.system.client import Client
from tests.system.platform import Platform
from tests.system.served import Load, Served

_TRAINING = """
import random, sys, time
random.seed(7)
rows = [(x, 3 * x + 1 + random.gauss(0, 0.1)) for x in (random.uniform(-1, 1) for _ in range(4000))]
w = b = 0.0
epochs = int(sys.argv[1])
print(f"\\x1b[1mFitting a line to {len(rows)} points\\x1b[0m")
for epoch in range(1, epochs + 1):
    loss = 0.0
    for x, y in rows:
        error = w * x + b - y
        loss += error * error
        w, b = w - 0.0004 * error * x, b - 0.0004 * error
    done = 24 * epoch // epochs
    bar = "\\x1b[34m" + "━" * done + "\\x1b[90m" + "━" * (24 - done) + "\\x1b[0m"
    told = f"loss \\x1b[32m{loss / len(rows):.4f}\\x1b[0m  w {w:.3f}  b {b:.3f}"
    print(f"epoch {epoch:3}/{epochs}  {bar}  {told}", flush=True)
    time.sleep(float(sys.argv[2]))
""".strip()
TRAINING_FILE = f"cat >train.py <<'END'\n{_TRAINING}\nEND\n"
_PIPELINE = """\
kind: pipeline
name: nightly
defaults: {image: python, resources: {cpu: 0.1, mem: 64m}}
steps:
  prepare: {startup_command: "true"}
  train:
    after: [prepare]
    matrix: {lr: [0.1, 0.01], seed: [1, 2, 3]}
    startup_command: "test $PARAM_LR.$PARAM_SEED != 0.1.3"
  check: {after: {train: any}, startup_command: "true"}
  export: {after: {train: any}, startup_command: "sleep 3600"}
  report: {after: [check, export], startup_command: "true"}
"""
_SETTLED_SECONDS = 120
_LOAD_SECONDS = 130  # so that the plots have some minutes to show


class Work:
    """What is under way on the platform; ``paths`` are the addresses of its pages by name."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.ada, self.noor = platform.client, Client(platform.url, run_on(platform, "make_lab"))
        self.paths = {"run": self._run(), "folder": self._folder()}
        self.paths |= {name: f"/sessions/{session_id}/" for name, session_id in self._sessions().items()}

    def _folder(self) -> str:
        self._folder_id = self.ada.post("folders/", {"name": "ocean-data", "limit_bytes": 20 * 2**30})["id"]
        ready = lambda: self.ada.folder(self._folder_id)["status"] == "READY"  # noqa: E731
        until(ready, _SETTLED_SECONDS, "the folder is ready")
        return f"/folders/{self._folder_id}/"

    def _run(self) -> str:
        run_id = self.ada.post("runs/", {"text": _PIPELINE})["id"]
        expected = {"SUCCEEDED": 7, "FAILED": 1, "RELEASED": 1, "WAITING": 1}
        until(lambda: self._states(run_id) == expected, _SETTLED_SECONDS, "the run has come to its long step")
        return f"/runs/{run_id}/"

    def _states(self, run_id: str) -> Counter[str]:
        return Counter(task["state"] for task in self.ada._get(f"runs/{run_id}/tasks/").json()["results"])

    def _sessions(self) -> dict[str, str]:
        """Launch sessions of two people; returns their ids by name."""
        ada, noor, job = self.ada, self.noor, {"type": "batch"}
        ada.wait_for(_launch(noor, "prepare-data", 1, "2g", **job, startup_command="echo done"), "TERMINATED")
        failing = _launch(ada, "export-model", 1, "2g", **job, startup_command="python -c 'import model'")
        ada.wait_for(failing, "TERMINATED")
        train = f"{TRAINING_FILE}python train.py 400 1"
        mounts = [{"folder": self._folder_id}]
        running = {
            "preprocess": _launch(noor, "preprocess", 4, "16g", **job, startup_command=train),
            "train-baseline": _launch(ada, "train-baseline", 4, "8g", **job, startup_command=train),
            "sweep": _launch(noor, "sweep", 1, "4g", cluster_size=2),
            "fine-tune": _launch(ada, "fine-tune", 4, "14g", image="python-science", mounts=mounts),
        }
        for session_id in running.values():
            ada.wait_until_running(session_id)
        waiting = {"evaluate": _launch(ada, "evaluate", 6, "24g"), "report": _launch(noor, "report", 2, "4g")}
        return running | waiting

    @contextmanager
    def served(self) -> Iterator[None]:
        """Run an endpoint that has answered requests for two minutes and goes on."""
        served = Served(self._platform)
        self.paths["endpoint"] = f"/{served.path}"
        served.wait(2)
        with Load(served):
            time.sleep(_LOAD_SECONDS)
            yield


def _launch(client: Client, name: str, cpu: int, mem: str, **fields: object) -> str:
    return str(client.launch(name, **({"image": "python", "resources": {"cpu": cpu, "mem": mem}} | fields))["id"])
