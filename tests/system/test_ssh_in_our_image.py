"""One folder in the platform's own image: SSH, SFTP, the console, JupyterLab and the explorer have the same files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.system.client import Body
from tests.system.platform import ROOT, Platform
from tests.system.polling import until
from tests.system.test_apps import Visitor
from tests.system.test_ssh import Here

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(900)]
_XSRF = "ab" * 16


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
        answer = self._web.put(url, json=content, headers=headers, timeout=60)
        assert answer.status_code == 201, answer.text

    def names(self, path: str) -> set[str]:
        """Return what its file browser lists."""
        return {str(one["name"]) for one in self.ask("GET", f"/api/contents/{path}").json()["content"]}


def test_every_way_writes_files_that_all_others_see(here: Here, session: Body) -> None:
    notebooks = Notebooks(here.platform, session, "jupyterlab")
    notebooks.open()
    (here.local / "by-sftp").write_text("s")
    assert here.run("sftp", "-b", "-", "train@127.0.0.1", given=f"put {here.local}/by-sftp data/\n").returncode == 0
    assert here.run("ssh", "train@127.0.0.1", "echo x >data/by-ssh").returncode == 0
    run_code(here, session, "open('data/by-console', 'w').write('c')")
    notebooks.save("data/by-notebook", "n")
    written = {"by-sftp", "by-ssh", "by-console", "by-notebook"}
    assert written <= set(here.run("ssh", "train@127.0.0.1", "ls data").stdout.split())
    listed = here.run("sftp", "-b", "-", "train@127.0.0.1", given="cd data\nls -1\n")
    assert written <= set(listed.stdout.split()), listed
    seen = run_code(here, session, "import os; print(*os.listdir('data'))")
    assert all(name in seen for name in written), seen
    assert written <= notebooks.names("data")
    entries = here.client._get(f"folders/{here.folder}/entries/").json()["entries"]
    assert written <= {one["name"] for one in entries}
    home = here.client._get(f"sessions/{session['id']}/entries/?path=data").json()["entries"]
    assert written <= {one["name"] for one in home}
