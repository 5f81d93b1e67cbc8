"""The supervisor, with shell scripts for children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from backendai.ops.run import data_folder
from backendai.ops.run.child import Program
from backendai.ops.run.console import Console, LogFile
from backendai.ops.run.supervisor import Supervisor, restart_delay
from tests.patience import patient, until

PATIENCE = 20.0

PROGRAM = """
import sys
from pathlib import Path
from backendai.ops.run.child import Program
from backendai.ops.run.supervisor import Supervisor

folder = Path(sys.argv[1])
def script(name, text, **options):
    return Program(name, ("/bin/sh", "-c", text), {"NAME": name, "FOLDER": str(folder)}, **options)

STEADY = 'echo $$ >"$FOLDER/$NAME.pid"; exec sleep 1000'
REPORTS = 'trap "echo $NAME >>$FOLDER/stopped; exit 0" TERM; echo $$ >"$FOLDER/$NAME.pid"; while :; do sleep 0.05; done'
DEAF = 'trap "" TERM; echo $$ >"$FOLDER/$NAME.pid"; while :; do sleep 0.05; done'
with Supervisor(folder / "logs") as supervisor:
    for program in eval(sys.argv[2]):
        supervisor.start(program)
    supervisor.serve()
"""


@pytest.fixture
def quiet() -> Iterator[Console]:
    descriptor = os.open(os.devnull, os.O_WRONLY)
    yield Console(descriptor)
    os.close(descriptor)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start a supervisor of its own process for the programs that an expression names; killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(programs: str) -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[2]
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), programs]
        started.append(subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def pid_of(folder: Path, name: str) -> int:
    path = folder / f"{name}.pid"
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_it_waits_longer_after_each_failure_and_never_more_than_half_a_minute() -> None:
    assert [restart_delay(fails) for fails in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert restart_delay(5000) == 30


def test_it_starts_a_child_again_that_dies(tmp_path: Path, quiet: Console) -> None:
    starts = tmp_path / "starts"
    script = Program("flaky", ("/bin/sh", "-c", f"echo again >>{starts}; exit 3"))
    with Supervisor(tmp_path / "logs", terminal=quiet, first_delay=0.01) as supervisor:
        supervisor.start(script)
        assert supervisor.wait_until(lambda: starts.exists() and len(starts.read_text().split()) >= 4, PATIENCE)


def test_it_backs_off_between_the_starts_of_a_child_that_dies_at_once(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with Supervisor(tmp_path / "logs", terminal=Console(writer), first_delay=0.01) as supervisor:
        starts = tmp_path / "starts"
        supervisor.start(Program("flaky", ("/bin/sh", "-c", f"echo again >>{starts}; exit 3")))
        supervisor.wait_until(lambda: starts.exists() and len(starts.read_text().split()) >= 4, PATIENCE)
    os.close(writer)
    with os.fdopen(reader) as output:
        delays = [line.split()[-2] for line in output if "starting it again" in line]
    assert delays[:3] == ["0.01", "0.02", "0.04"]


def test_it_does_not_start_a_single_run_again(tmp_path: Path, quiet: Console) -> None:
    runs = tmp_path / "runs"
    once = Program("once", ("/bin/sh", "-c", f"echo run >>{runs}"), restart=False)
    with Supervisor(tmp_path / "logs", terminal=quiet, first_delay=0.0) as supervisor:
        supervisor.start(once)
        supervisor.wait_until(runs.exists, PATIENCE)
        supervisor.wait_until(lambda: False, 0.3)
    assert runs.read_text().split() == ["run"]


def test_it_returns_the_exit_code_of_a_program_that_runs_once(tmp_path: Path, quiet: Console) -> None:
    with Supervisor(tmp_path / "logs", terminal=quiet) as supervisor:
        assert supervisor.run_once(Program("fine", ("/bin/true",), restart=False)) == 0
        assert supervisor.run_once(Program("bad", ("/bin/sh", "-c", "exit 7"), restart=False)) == 7
        assert supervisor.run_once(Program("absent", ("/no/such/program",), restart=False)) == 127


def test_it_keeps_the_last_words_of_a_child_in_its_log(tmp_path: Path, quiet: Console) -> None:
    with Supervisor(tmp_path / "logs", terminal=quiet) as supervisor:
        supervisor.run_once(Program("last", ("/bin/sh", "-c", "echo one; printf two >&2"), restart=False))
    assert (tmp_path / "logs" / "last.log").read_text() == "one\ntwo\n"


def test_it_gives_children_their_environment(tmp_path: Path, quiet: Console) -> None:
    with Supervisor(tmp_path / "logs", terminal=quiet) as supervisor:
        supervisor.run_once(Program("env", ("/bin/sh", "-c", "echo $WORD"), {"WORD": "given"}, restart=False))
    assert (tmp_path / "logs" / "env.log").read_text() == "given\n"


def test_it_stops_the_stages_one_after_the_other(
    tmp_path: Path, launch: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    names = {"broker": 2, "web": 1, "agent": 0}
    supervisor = launch(f"[script(name, REPORTS, stop_stage=stage) for name, stage in {names}.items()]")
    pids = [pid_of(tmp_path, name) for name in names]
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(patient(PATIENCE)) == 0
    assert (tmp_path / "stopped").read_text().split() == ["agent", "web", "broker"]
    assert all(gone(pid) for pid in pids)


def test_it_kills_a_child_that_does_not_stop_in_its_time(
    tmp_path: Path, launch: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    supervisor = launch('[script("deaf", DEAF, grace=0.2)]')
    pid = pid_of(tmp_path, "deaf")
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(patient(PATIENCE)) == 0
    assert gone(pid)


def test_it_stops_at_once_when_asked_twice(tmp_path: Path, launch: Callable[[str], subprocess.Popen[bytes]]) -> None:
    supervisor = launch('[script("deaf", DEAF, grace=1000), script("polite", REPORTS, stop_stage=0)]')
    pid = pid_of(tmp_path, "deaf")
    pid_of(tmp_path, "polite")
    supervisor.send_signal(signal.SIGINT)
    until(lambda: (tmp_path / "stopped").exists())
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(patient(PATIENCE)) == 0
    assert gone(pid)


def test_it_leaves_no_child_behind_when_it_is_killed(
    tmp_path: Path, launch: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    supervisor = launch('[script("one", STEADY), script("deaf", DEAF)]')
    pids = [pid_of(tmp_path, "one"), pid_of(tmp_path, "deaf")]
    assert not any(gone(pid) for pid in pids)
    supervisor.kill()
    until(lambda: all(gone(pid) for pid in pids))


def test_it_refuses_a_second_start_on_the_same_folder(tmp_path: Path) -> None:
    lock = data_folder.lock(tmp_path)
    with pytest.raises(data_folder.StartRefused, match=f"process {os.getpid()}"):
        data_folder.lock(tmp_path)
    os.close(lock)
    os.close(data_folder.lock(tmp_path))


def test_it_goes_on_when_the_terminal_takes_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    terminal = Console(writer)
    with Supervisor(tmp_path / "logs", terminal=terminal) as supervisor:
        supervisor.run_once(Program("chatty", ("/bin/sh", "-c", "seq 1 40000"), restart=False))
    os.close(reader)
    os.close(writer)
    assert (tmp_path / "logs" / "chatty.log").read_text().split()[-1] == "40000"


def test_it_turns_a_full_log_over(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.log", limit=10, keep=2)
    for number in range(5):
        log.write(f"line {number}\n".encode())
    log.close()
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {"a.log": "line 4\n", "a.log.1": "line 3\n", "a.log.2": "line 2\n"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    LogFile(tmp_path / "logs" / "b.log").close()
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700


def test_it_shows_troubles_with_what_follows_them_and_keeps_quiet_otherwise(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    terminal = Console(writer, verbose=False)
    for line in (
        b"2026-11-20 13:48:50,075 INFO backendai.agent: joined",
        b"a banner",
        b"2026-11-20 13:48:51,075 ERROR backendai.agent: it broke",
        b"Traceback (most recent call last):",
        b"  File somewhere",
        b"INFO:     Uvicorn running",
        b"more of it",
    ):
        terminal.line("agent", line)
    shown = os.read(reader, 4096).decode()
    assert "it broke" in shown and "File somewhere" in shown
    assert "joined" not in shown and "banner" not in shown and "more of it" not in shown
