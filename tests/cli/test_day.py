"""A day at a whole platform, by the command alone: the production path from a line typed to a process of a session."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Person
from tests.patience import patient, until
from tests.system.client import Client, fresh
from tests.system.platform import Platform, free_port

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
_ALLOW = """
from django.utils import timezone
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import devices
admin, now = User.objects.get(role="superadmin"), timezone.now()
devices.allow_request(admin, devices.find_request(admin, "{code}", "127.0.0.1", now=now), 7, now=now)
"""
SMALL = ("--cpu", "0.5", "--mem", "128m")


@pytest.fixture
def desk(platform: Platform) -> Iterator[str]:
    """The name of a running interactive session, which ends with the test."""
    client, name = platform.client, fresh("desk")
    session = client.launch(name, image="python", resources={"cpu": "0.5", "mem": "256m"})["id"]
    client.wait_until_running(session)
    yield name
    client.terminate(session)


def test_a_token_signs_in_and_stays_private(person: Person, platform: Platform) -> None:
    portal = platform.url
    nobody = {"BAI_URL": "", "BAI_TOKEN": ""}
    person.bai("ps", code=4, **nobody)
    person.bai("login", portal, "--token", "-", given="wrong\n", code=4, **nobody)
    person.bai("login", portal, "--token", "-", given=f"{platform.client.token}\n", **nobody)
    assert "admin@example.com" in person.said and platform.client.token not in person.said
    token = person.home / ".config/bai/tokens/default"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert json.loads(person.bai("api", "get", "me/", **nobody))["email"] == "admin@example.com"
    person.bai("ps", code=5, BAI_URL="http://127.0.0.1:9")


def test_a_program_runs_in_a_session_made_for_it_with_its_questions_and_its_exit_code(person: Person) -> None:
    (person.work / "ask.py").write_text(
        "import sys\nname = input('Name? ')\nprint('hello', name, sys.argv[1:])\n"
        "print('low', file=sys.stderr)\nsys.exit(3)\n"
    )
    out = person.bai("run", *SMALL, "ask.py", "-c", "0.1", "--keep", given="Bo\n", code=3)
    assert "hello Bo ['-c', '0.1', '--keep']\n" in out and "low" in person.said and "pending" in person.said
    until(lambda: person.bai("ps", "-q") == "", 60, "its session has ended")


def test_a_live_session_keeps_its_variables_and_runs_scripts(person: Person, desk: str) -> None:
    person.bai("run", "-s", desk, "-c", "x = 20")
    assert person.bai("run", "-s", desk[:-1], "-c", "print(x + 1)") == "21\n"
    person.bai("run", "-s", desk, "-c", "1/0", code=1)
    assert "ZeroDivisionError" in person.said
    (person.work / "count.sh").write_text('echo "$1 is here"; echo low >&2; exit 4\n')
    assert person.bai("run", "-s", desk, "count.sh", "Bo", code=4) == "Bo is here\n"
    assert "low" in person.said


def test_ctrl_c_interrupts_the_program(person: Person, desk: str) -> None:
    code = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    command = [sys.executable, "-m", "bai", "run", "-s", desk, "-c", code]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen(command, env=person.environ, cwd=person.work, text=True, **pipes)
    assert running.stdout and running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=patient(30))
    assert (running.returncode, "(interrupted)" in said) == (130, True)


def test_ctrl_c_at_a_terminal_asks_and_leaves_the_program_running(person: Person, desk: str) -> None:
    ours, theirs = pty.openpty()
    code = "import time\nprint('begun', flush=True)\ntime.sleep(4)\nopen('done', 'w').close()"
    command = [sys.executable, "-m", "bai", "run", "-s", desk, "-c", code]
    ends = {"stdin": theirs, "stdout": subprocess.PIPE, "stderr": theirs}
    running = subprocess.Popen(command, env=person.environ, cwd=person.work, text=True, start_new_session=True, **ends)
    assert running.stdout and running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGINT)
    os.write(ours, b"r\n")
    assert running.wait(patient(30)) == 0
    os.close(theirs)
    os.close(ours)
    until(lambda: person.run("bai", "cp", f"{desk}:done", "done").returncode == 0, 60, "it went on to its end")


def test_a_script_is_submitted_waited_for_and_its_output_read(person: Person) -> None:
    name = fresh("fit")
    (person.work / "fit.sh").write_text(
        f"#!/bin/bash\n#SBATCH -J {name} -c 1 --mem=128M\n#SBATCH --mail-type=END\n"
        'echo "$SLURM_JOB_NAME $SLURM_CPUS_PER_TASK $1 $LEVEL"\nsleep 1\necho done\nexit 7\n'
    )
    assert "starts now" in person.bai("submit", "--dry-run", "fit.sh")
    person.bai("submit", "--strict", "fit.sh", code=1)
    assert "line 3" in person.said
    session = person.bai("submit", "--env", "LEVEL=high", "fit.sh", "a b").strip()
    person.bai("wait", name, code=7)
    assert "exit code 7" in person.said, person.said
    assert person.bai("logs", session) == person.bai("logs", "-f", name) == f"{name} 1 a b high\ndone\n"
    assert person.bai("logs", "-f", "--tail", "1", session) == "done\n"
    assert person.bai("ps", "-a", "-o", "json", "--status", "terminated").count(name) >= 1


def test_an_array_runs_once_for_each_number(person: Person) -> None:
    name = fresh("sweep")
    (person.work / "sweep.py").write_text(
        "#!/usr/bin/env python3\n#BAI cpu: 0.5\n#BAI mem: 128m\n#BAI array: 2-4%2\n"
        "import os, sys\nsys.exit(os.environ['BACKENDAI_ARRAY_INDEX'] == '3')\n"
    )
    person.bai("submit", "--name", name, "--wait", "sweep.py", code=1)
    assert "1 failed" in person.said and "2 succeeded" in person.said
    assert f"{name}\tarray\tFAILED" in person.bai("pipeline", "ls")
    person.bai("pipeline", "retry", name)
    person.bai("wait", name, code=1)


def test_a_waiting_session_says_why_and_what_would_start_it(person: Person) -> None:
    (person.work / "long.sh").write_text("#!/bin/bash\n#BAI mem: 128m\nsleep 600\n")
    names = [fresh("full"), fresh("late")]
    for name in names:
        person.bai("submit", "--name", name, "--cpu", "4", "long.sh")
    until(lambda: "No agent has room" in person.bai("why", names[1]), 60, "the second waits")
    why = person.bai("why", names[1])
    assert "4 CPU cores requested" in why and "Position 1 of 1" in why
    assert json.loads(person.bai("why", names[1], "-o", "json"))["verdict"] == "waits"
    assert names[1] in person.bai("admin", "queue")
    person.bai("rm", "--force", *names)
    person.bai("wait", names[1], code=1)
    person.bai("submit", "--cpu", "400", "--dry-run", "long.sh", code=1)
    person.bai("run", "--cpu", "400", "-c", "1", code=1)


def test_files_go_to_a_session_and_come_back(person: Person, desk: str) -> None:
    (person.work / "tree/deep").mkdir(parents=True)
    (person.work / "tree/deep/leaf").write_text("leaf")
    (person.work / "big").write_bytes(os.urandom(3_000_000))
    person.bai("cp", "big", f"{desk}:in/big")
    person.bai("cp", f"{desk}:in/big", "back")
    assert (person.work / "back").read_bytes() == (person.work / "big").read_bytes()
    person.bai("cp", "-r", "tree", f"session:{desk}:")
    person.bai("cp", "-r", f"{desk}:tree", "got")
    assert (person.work / "got/tree/deep/leaf").read_text() == "leaf"
    person.bai("cp", f"{desk}:tree", "got2", code=1)
    person.bai("cp", f"{desk}:nothing", "got2", code=3)
    person.bai("cp", "tree", f"{desk}:", code=2)
    assert sorted(path.name for path in person.work.iterdir()) == ["back", "big", "got", "tree"]


def test_files_go_to_a_folder_and_an_upload_goes_on_where_it_broke_off(person: Person) -> None:
    name = fresh("corpus")
    person.bai("folder", "create", name, "--limit", "1g")
    (person.work / "big").write_bytes(os.urandom(40_000_000))
    command = [sys.executable, "-m", "bai", "cp", "big", f"{name}:models/a/big"]
    uploads = person.home / ".cache/bai/uploads"
    first = subprocess.Popen(command, env=person.environ, cwd=person.work)
    until(lambda: uploads.exists() and any(uploads.iterdir()), 60, "the upload has begun")
    time.sleep(0.2)
    first.kill()
    first.wait()
    person.bai("cp", "big", f"{name}:models/a/big")
    assert not list(uploads.iterdir())
    person.bai("cp", "big", f"{name}:models/a/big", code=1)
    person.bai("cp", "--overwrite", "big", f"{name}:models/a/big")
    person.bai("cp", f"{name}:models/a/big", "back")
    assert (person.work / "back").read_bytes() == (person.work / "big").read_bytes()
    (person.work / "tree").mkdir()
    (person.work / "tree/leaf").write_text("leaf")
    person.bai("cp", "-r", "tree", f"folder:{name}:")
    person.bai("cp", "-r", f"{name}:tree", "got")
    assert (person.work / "got/tree/leaf").read_text() == "leaf"
    assert person.bai("folder", "ls", name, "-o", "name").split() == ["models", "tree"]
    person.bai("folder", "share", name, "nobody@example.com", code=3)
    person.bai("folder", "rm", name)
    assert name not in person.bai("folder", "ls")


def test_a_session_is_reached_by_ssh_and_a_port_of_it_is_here(person: Person, desk: str) -> None:
    assert person.bai("ssh", desk, "echo $((6*7)); exit 5", code=5) == "42\n"
    assert person.bai("ssh", desk, "echo", "-n", "x") == "x"
    (key,) = [path for path in (person.home / ".cache/bai/keys").iterdir() if not path.suffix]
    made = key.stat()
    assert stat.S_IMODE(made.st_mode) == 0o600
    person.bai("ssh", desk, "true")
    assert key.stat().st_mtime_ns == made.st_mtime_ns  # fetched once
    there, here = free_port(), free_port()
    serve = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-m', 'http.server', '{there}'])"
    person.bai("run", "-s", desk, "-c", serve)
    command = [sys.executable, "-m", "bai", "port-forward", desk, f"{here}:{there}"]
    forward = subprocess.Popen(command, env=person.environ, stderr=subprocess.PIPE)
    try:
        until(lambda: person.run("curl", "-sf", f"http://127.0.0.1:{here}/").returncode == 0, 60, "the port answers")
    finally:
        forward.terminate()
        forward.communicate()
    person.bai("ssh-config", "--write")
    person.bai("ssh-config", "--write")
    included = (person.home / ".ssh/config").read_text()
    assert included.count("Include ") == 1 and f"Host {desk}" in (person.home / ".config/bai/ssh_config").read_text()


def test_output_is_followed_over_a_portal_that_starts_again(person: Person, platform: Platform) -> None:
    name = fresh("count")
    (person.work / "count.sh").write_text(
        "#!/bin/bash\n#BAI mem: 128m\nfor i in $(seq 1 40); do echo line-$i; sleep 0.5; done\n"
    )
    person.bai("submit", "--name", name, "--cpu", "0.5", "count.sh")
    platform.client.wait_until_running(person.bai("show", name, "-q").strip())
    done: list[str] = []
    following = threading.Thread(target=lambda: done.append(person.bai("logs", "-f", name)))
    following.start()
    time.sleep(3)
    platform.wait_for_restart("web", platform.kill("web"))
    following.join(patient(90))
    assert done == ["".join(f"line-{number}\n" for number in range(1, 41))]


def test_sessions_are_renamed_extended_opened_and_shown(person: Person, platform: Platform, desk: str) -> None:
    other = fresh("renamed")
    person.bai("rename", desk, other)
    assert "ends in" in person.bai("extend", other, "--by", "2h") and "no time limit" in person.bai(
        "extend", other, "--no-end"
    )
    person.bai("extend", other, code=3)
    session = person.bai("show", other, "-q").strip()
    assert person.bai("open", "--print", other, "jupyterlab") == f"{platform.url}/sessions/{session}/apps/jupyterlab/\n"
    person.bai("open", "--print", other, "nothing", code=3)
    lines = person.bai("jupyter", other)
    assert "JUPYTER_GATEWAY_URL=http" in lines and platform.client.token not in lines
    assert f"{other}\tcpu\t" in person.bai("top") and "cpu\t" in person.bai("quota")
    assert person.bai("image", "ls", "-o", "name").split()[0] == "python"
    person.bai("rename", other, desk)
    person.bai("resume", desk, code=1)


def test_an_administrator_drains_an_agent_and_looks_at_people(person: Person) -> None:
    assert "admin@example.com" in person.bai("admin", "users", "--search", "admin")
    person.bai("admin", "drain", "local")
    assert "local\tDRAINING\t" in person.bai("admin", "agents")
    person.bai("admin", "drain", "local", "--cancel")
    until(lambda: "local\tALIVE\t" in person.bai("admin", "agents"), 60, "the agent takes sessions again")


def test_an_endpoint_is_listed_opened_and_its_output_read(person: Person, platform: Platform) -> None:
    name = fresh("echo")
    command = 'echo serving here; exec python3 -m http.server --bind "$HOST" "$PORT"'
    body = {"name": name, "image": "python", "command": command, "port": free_port(), "probe_path": "/", "minimum": 1}
    made = platform.client.post("endpoints/", body | {"resources": {"cpu": "0.5", "mem": "128m"}})
    until(lambda: f"{name}\tserving\t1/1" in person.bai("endpoint", "ls"), 120, "it serves")
    assert f"name\t{name}\n" in person.bai("endpoint", "show", name)
    token, address = person.bai("endpoint", "token", name).strip(), urlsplit(made["url"])
    ask = ["curl", "-sf", f"http://127.0.0.1:{address.port}{address.path}", "-H", f"Host: {address.netloc}"]
    assert person.run(*ask).returncode != 0
    assert person.run(*ask, "-H", f"Authorization: Bearer {token}").returncode == 0
    assert "serving here" in person.bai("endpoint", "logs", name)
    person.bai("api", "DELETE", f"/endpoints/{made['id']}/")


def test_a_program_signs_in_by_a_code_that_a_person_allows(person: Person, platform: Platform) -> None:
    pytest.importorskip("backendai.domain.accounts.services.devices", reason="this portal has no such sign-in")
    environ = {**person.environ, "BAI_URL": "", "BAI_TOKEN": ""}
    command = [sys.executable, "-m", "bai", "login", platform.url, "--no-browser", "--scope", "read"]
    waiting = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    assert waiting.stderr is not None
    code = waiting.stderr.readline().split()[-1]
    assert platform.manage("shell", "--no-imports", "-c", _ALLOW.format(code=code)).returncode == 0
    _, said = waiting.communicate(timeout=patient(60))
    assert waiting.returncode == 0, said
    nobody = {"BAI_URL": "", "BAI_TOKEN": ""}
    person.bai("ps", **nobody)
    person.bai("folder", "create", fresh("no"), code=1, **nobody)
    person.bai("logout", **nobody)
    person.bai("ps", code=4, **nobody)


def test_any_request_is_sent_by_hand(person: Person) -> None:
    made = json.loads(person.bai("api", "POST", "/folders/", "-d", json.dumps({"name": fresh("by-hand")})))
    person.bai("api", "DELETE", f"/api/v1/folders/{made['id']}/")
    (person.work / "body.json").write_text('{"image": "nothing"}')
    person.bai("api", "POST", "/session-preview/", "-d", "@body.json", code=1)
    assert len(json.loads(person.bai("api", "GET", "/images/?page_size=1", "--all"))["results"]) >= 3
    person.bai("api", "GET", "/nothing/", code=3)


def test_a_token_that_only_reads_is_refused_with_its_reason(person: Person, platform: Platform) -> None:
    token = platform.client.post("tokens/", {"name": fresh("reader"), "scopes": ["read"]})["token"]
    assert Client(platform.url, token).sessions() is not None
    person.bai("-v", "run", "-c", "1", code=1, BAI_TOKEN=token)
    assert "token-scope" in person.said
