"""Slurm and this scheduler on the same machine, one after the other: 10,000 jobs for 1,000 nodes, decisions per second.

Slurm decides from "released" to "allocated" in its controller's memory; ours from reading the database to having
written status, ledger and history (``bench/passes.py``). Both are "pending → committed to a node". Needs Debian's
packages slurmctld, slurm-client and munge, and root.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench._command import command, show

NODES, CORES, TASKS, SHAPES = 1_000, 64, 10_000, 20
_PATIENCE_SECONDS = 180.0
_NEEDED = ("slurmctld", "munged", "sbatch", "squeue", "scontrol")

CONFIG = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={socket}
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmctldDebug=error
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/{scheduler}
SchedulerParameters=default_queue_depth=100000,max_sched_time=120,sched_min_interval=0,batch_sched_delay=0
MessageTimeout=300
MaxJobCount=50000
MaxArraySize=20000
ResumeProgram=/bin/true
SuspendProgram=/bin/true
ResumeTimeout=3600
SuspendTime=-1
ReturnToService=2
NodeName=n[1-{nodes}] CPUs={cores} RealMemory=1000000 State=CLOUD
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def run(schedulers: tuple[str, ...] = ("builtin", "backfill")) -> dict[str, float]:
    """Return decisions per second of Slurm with each of its schedulers, and of ours with the ratio to the faster."""
    figures = {f"slurm_{name}_per_s": decisions_per_second(name) for name in schedulers}
    ours = _our_placements_per_second()
    best = max(figures.values())
    return {**figures, "ours_per_s": ours, "ratio": round(ours / best, 1)}


def decisions_per_second(scheduler: str) -> float:
    """Return how many tasks per second a fresh Slurm controller gives nodes to."""
    with _controller(scheduler) as environ:
        for shape in range(SHAPES):
            _submit(environ, shape)
        started = time.perf_counter()
        _slurm(environ, "scontrol", "release", *(str(number) for number in range(1, SHAPES + 1)))
        _until_allocated(environ, started)
        return round(TASKS / (time.perf_counter() - started), 1)


@contextmanager
def _controller(scheduler: str) -> Iterator[dict[str, str]]:
    """A controller and its authentication daemon in a folder of their own; yields the clients' environment."""
    folder = Path(tempfile.mkdtemp(prefix="bench-slurm-"))
    folder.chmod(0o755)
    environ = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    try:
        munged = _start_munge(folder)
        _write_config(folder, scheduler)
        controller = subprocess.Popen(["slurmctld", "-D"], env=environ, stderr=subprocess.DEVNULL)
        try:
            _until_answering(environ)
            yield environ
        finally:
            _stop(controller)
            _stop(munged)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start_munge(folder: Path) -> subprocess.Popen[bytes]:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munge.pid"}
    files |= {"log-file": folder / "munge.log", "seed-file": folder / "munge.seed"}
    options = [f"--{name}={path}" for name, path in files.items()]
    return subprocess.Popen(["munged", "--foreground", "--force", *options], stderr=subprocess.DEVNULL)


def _write_config(folder: Path, scheduler: str) -> None:
    (folder / "state").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = CONFIG.format(
        host=socket.gethostname(),
        port=port,
        user=getpass.getuser(),
        socket=folder / "munge.socket",
        folder=folder,
        scheduler=scheduler,
        nodes=NODES,
        cores=CORES,
    )
    (folder / "slurm.conf").write_text(text)


def _until_answering(environ: dict[str, str]) -> None:
    deadline = time.monotonic() + 30
    while subprocess.run(["scontrol", "ping"], env=environ, capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            raise SystemExit("slurmctld does not answer")
        time.sleep(0.2)


def _submit(environ: dict[str, str], shape: int) -> None:
    tasks = TASKS // SHAPES
    options = [f"--cpus-per-task={1 + shape % 4}", f"--mem={100 + shape}", f"--array=0-{tasks - 1}", "--hold"]
    _slurm(environ, "sbatch", "--output=/dev/null", *options, "--wrap=true")


def _until_allocated(environ: dict[str, str], started: float) -> None:
    while time.perf_counter() - started < _PATIENCE_SECONDS:
        lines = _slurm(environ, "squeue", "--noheader", "--array", "--states=PENDING", "--format=%i").split()
        if not lines:
            return
        time.sleep(1)  # asking takes the controller's time
    raise SystemExit(f"slurmctld left {len(lines)} tasks without a node after {_PATIENCE_SECONDS:.0f} s")


def _slurm(environ: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:2])} failed: {done.stderr.strip()}")
    return done.stdout


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _our_placements_per_second() -> float:
    passes = subprocess.run(
        [sys.executable, "-m", "bench.passes", "--json"], capture_output=True, text=True, check=True
    )
    return float(json.loads(passes.stdout)["placements_per_s"])


def _missing() -> list[str]:
    return [name for name in _NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]


if __name__ == "__main__":
    parser = command("slurm", __doc__)
    parser.add_argument("--only", choices=["builtin", "backfill"], help="run one of Slurm's schedulers")
    wanted = parser.parse_args()
    if _missing():
        raise SystemExit(f"missing: {', '.join(_missing())} (apt install slurmctld slurm-client munge)")
    show(wanted, run((wanted.only,) if wanted.only else ("builtin", "backfill")))
