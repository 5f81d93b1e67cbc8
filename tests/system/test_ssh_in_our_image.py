"""SSH in the platform's own image: OpenSSH's programs, and one folder by SFTP, console, JupyterLab and explorer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.patience import patient, until
from tests.sshgate.sockets import free_port, page_of, page_through_socks
from tests.system.client import Body
from tests.system.platform import ROOT, Platform
from tests.system.test_apps import Visitor
from tests.system.test_ssh import Here

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(900)]
_XSRF, ADDRESS = "ab" * 16, "train@127.0.0.1"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    subprocess.run([ROOT / "bin" / "build-images", "--only", "python"], check=True)
    with Platform(tmp_path_factory.mktemp("same")) as platform:
        yield Here(platform, tmp_path_factory.mktemp("client"))


@pytest.fixture
def session(here: Here) -> Iterator[Body]:
    launch = {"image": "python", "resources": {"cpu": "1", "mem": "1g"}, "mounts": [{"folder": "data"}]}
    session = here.client.wait_until_running(here.client.launch("train", **launch)["id"])
    yield session
    here.client.end(session["id"])


def run_code(here: Here, session: Body, code: str) -> str:
    path = f"sessions/{session['id']}/runs/"
    run = here.client._send("POST", path, json={"mode": "query", "code": code, "wait": 20}).json()
    while run["state"] not in ("FINISHED", "LOST"):
        run = here.client._send("GET", f"{path}{run['run_id']}/?wait=20&after=0").json()
    assert (run["state"], run["exit_code"]) == ("FINISHED", 0), run
    return str(run["items"])


class Notebooks(Visitor):
    """JupyterLab of a session."""

    def open(self) -> None:
        """Start it."""
        assert self.enter().status_code == 303
        until(lambda: self.ask("GET", "/.backendai/open").status_code == 303, 90, "JupyterLab has started")
        self.cookie += f"; _xsrf={_XSRF}"

    def save(self, path: str, text: str) -> None:
        """Write a file as its page does."""
        content = {"type": "file", "format": "text", "content": text}
        headers = {"Host": self.host, "Cookie": self.cookie, "X-XSRFToken": _XSRF}
        url = f"http://{self._at}:{self.port}/api/contents/{path}"
        answer = self._web.put(url, json=content, headers=headers, timeout=patient(60))
        assert answer.status_code == 201, answer.text

    def names(self, path: str) -> set[str]:
        """Return what its file browser lists."""
        return {str(one["name"]) for one in self.ask("GET", f"/api/contents/{path}").json()["content"]}


def test_every_way_writes_files_that_all_others_see(here: Here, session: Body) -> None:
    notebooks = Notebooks(here.platform, session, "jupyterlab")
    notebooks.open()
    (here.local / "by-sftp").write_text("s")
    assert here.run("sftp", "-b", "-", ADDRESS, given=f"put {here.local}/by-sftp data/\n").returncode == 0
    assert here.run("ssh", ADDRESS, "echo x >data/by-ssh").returncode == 0
    run_code(here, session, "open('data/by-console', 'w').write('c')")
    notebooks.save("data/by-notebook", "n")
    written = {"by-sftp", "by-ssh", "by-console", "by-notebook"}
    assert written <= set(here.run("ssh", ADDRESS, "ls data").stdout.split())
    listed = here.run("sftp", "-b", "-", ADDRESS, given="cd data\nls -1\n")
    assert written <= set(listed.stdout.split()), listed
    seen = run_code(here, session, "import os; print(*os.listdir('data'))")
    assert all(name in seen for name in written), seen
    assert written <= notebooks.names("data")
    entries = here.client._get(f"folders/{here.folder}/entries/").json()["entries"]
    assert written <= {one["name"] for one in entries}
    home = here.client._get(f"sessions/{session['id']}/entries/?path=data").json()["entries"]
    assert written <= {one["name"] for one in home}


def test_openssh_copies_in_every_way(here: Here, session: Body) -> None:
    content = os.urandom(500_000)
    (here.local / "sent").write_bytes(content)
    for number, old in enumerate(([], ["-O"])):
        assert here.run("scp", *old, f"{here.local}/sent", f"{ADDRESS}:sent{number}").returncode == 0
        assert here.run("scp", *old, f"{ADDRESS}:sent{number}", f"{here.local}/back{number}").returncode == 0
        assert (here.local / f"back{number}").read_bytes() == content
    tree, own = here.local / "tree", here.local / "own"
    tree.mkdir()
    (tree / "one").write_bytes(content)
    shell = " ".join(here.words("ssh"))
    subprocess.run(["rsync", "-a", "-e", shell, f"{tree}/", f"{ADDRESS}:tree/"], check=True, timeout=patient(60))
    assert here.run("ssh", ADDRESS, "git init -q --bare work.git; cmp sent0 tree/one").returncode == 0

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        environ = os.environ | {"GIT_SSH_COMMAND": shell, "GIT_CONFIG_GLOBAL": "/dev/null"}
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=patient(60), check=True
        ).stdout

    git("init", "-q", "-b", "main", str(own))
    git("-C", str(own), "commit", "-qm", "one", "--allow-empty")
    git("-C", str(own), "push", "-q", f"{ADDRESS}:work.git", "main")
    assert here.run("ssh", ADDRESS, "git -C work.git rev-parse main").stdout == git("-C", str(own), "rev-parse", "main")


def test_openssh_has_terminals_ports_and_a_shared_connection(here: Here, session: Body) -> None:
    shell = here.run("ssh", "-tt", ADDRESS, given="tty; exit 5\n")
    assert shell.returncode == 5 and "/dev/pts/" in shell.stdout, shell
    control, local, dynamic = here.local / "c", free_port(), free_port()
    forwards = ["-L", f"127.0.0.1:{local}:localhost:8000", "-D", f"127.0.0.1:{dynamic}"]
    master = subprocess.Popen(here.words("ssh", "-M", "-N", "-S", str(control), *forwards, ADDRESS))
    try:
        until(control.exists, 30, "the shared connection is there")
        serve = "echo hello >index.html; nohup python3 -m http.server 8000 --bind 127.0.0.1 >log 2>&1 </dev/null &"
        wait = "until curl -sf localhost:8000/index.html; do sleep 0.1; done"
        assert here.run("ssh", "-S", str(control), ADDRESS, f"{serve} {wait}").stdout == "hello\n"
        assert b"hello" in page_of(local, "/index.html")
        assert b"hello" in page_through_socks(dynamic, "localhost", 8000, "/index.html")
        assert page_through_socks(dynamic, "169.254.169.254", 80) == b""
        assert here.run("ssh", "-S", str(control), ADDRESS, "exit 7").returncode == 7
    finally:
        master.kill()  # it may sleep through a signal that comes just before it waits
        master.wait(patient(10))
