"""The life of a folder on two agents that share one path: written, read under an alias, and shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.patience import patient, until
from tests.system.client import Body, Client, fresh
from tests.system.images import ensure_tiny
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.ci, pytest.mark.timeout(900)]
ALICE, BOB = "alice@example.com", "bob@example.com"
_PEOPLE = f"""
from backendai.domain.accounts.services import create_person, create_token, get_or_create_project
from backendai.domain.accounts.models import User
project = User.objects.get(role="superadmin").projects.get()
for email in ("{ALICE}", "{BOB}"):
    print(create_token(create_person(email, password=None, project=project), "laptop")[1])
"""
_WISH = {"resources": {"cpu": "0.5", "mem": "64m"}}


class Lab:
    """A platform whose two agents share the storage host, Alice, and her colleague Bob."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        done = platform.manage("shell", "--no-imports", "-c", _PEOPLE)
        assert done.returncode == 0, done.stderr
        tokens = done.stdout.split()[-2:]
        self.alice, self.bob = (Client(platform.url, token) for token in tokens)
        agents = {agent["name"] for agent in self.alice.agents()} or {"local-1", "local-2"}
        assert len(agents) == 2
        self.first, self.second = sorted(agents)
        self.warm_up = self.alice.post("folders/", {"name": "warm-up"})  # the storage host is there
        # Not always the port after the portal's, which somebody else may use.
        self.apps = f"http://127.0.0.1:{urlsplit(self.warm_up['files_url']).port}"

    def launch(self, who: Client, name: str, agent: str, **fields: Any) -> Body:
        """Launch on one of the agents, and wait until it runs."""
        wish = {**_WISH, "image": self.image, "agents": [agent], **fields}
        return who.wait_until_running(who.launch(name, **wish)["id"])

    @property
    def image(self) -> str:
        """What sessions are started from."""
        return "tiny" if self.platform.containers_are_used else "python"

    def files(self, who: Client, folder: str, method: str, path: str, **more: Any) -> requests.Response:
        """Ask for bytes at the folder's own origin, as scripts do: with the access token."""
        host = f"files-{folder.replace('-', '')[:12]}.apps.localhost"
        headers = {"Host": host, "Authorization": f"Bearer {who.token}", **more.pop("headers", {})}
        with requests.Session() as session:
            session.trust_env = False
            return session.request(method, self.apps + path, headers=headers, timeout=patient(30), **more)


@pytest.fixture(scope="module", params=["docker", pytest.param("process", marks=pytest.mark.long)])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if request.param == "docker":
        ensure_tiny()
    with Platform(tmp_path_factory.mktemp("folders"), agents=2, backend=request.param) as platform:
        lab = Lab(platform)
        until(lambda: lab.alice.folder(lab.warm_up["id"])["status"] == "READY", 60, "the storage host makes folders")
        yield lab
        assert "Traceback" not in platform.logs()


def ask(who: Client, method: str, path: str, body: Any = None) -> requests.Response:
    return who._send(method, path, json=body)


def test_what_one_session_trains_another_reads_and_a_colleague_cannot_write(lab: Lab) -> None:
    alice, bob = lab.alice, lab.bob
    folder = alice.post("folders/", {"name": fresh("corpus")})["id"]
    until(lambda: alice.folder(folder)["is_reachable"], 30, "an agent mounts it", last=lambda: alice.folder(folder))

    train = lab.launch(alice, "train", lab.first, mounts=[{"folder": folder, "target": "corpus"}])
    with alice.terminal(train["id"]) as terminal:
        terminal.run("echo weights-$((40+2)) > ~/corpus/model.txt && echo saved-$?", "saved-0")
    listed = ask(alice, "GET", f"folders/{folder}/entries/").json()["entries"]
    assert [(one["name"], one["kind"]) for one in listed] == [("model.txt", "file")]
    assert lab.files(alice, folder, "GET", "/content?path=model.txt").text == "weights-42\n"
    refused = ask(alice, "DELETE", f"folders/{folder}/")
    assert (refused.status_code, refused.json()["code"]) == (409, "folder-mounted")
    alice.end(train["id"])

    again = lab.launch(alice, "evaluate", lab.second, mounts=[{"folder": folder, "target": "weights"}])
    with alice.terminal(again["id"]) as terminal:
        terminal.run("cat ~/weights/model.txt && echo more >> ~/weights/model.txt", "weights-42")
    alice.end(again["id"])

    assert ask(bob, "GET", f"folders/{folder}/").status_code == 404
    alice.post(f"folders/{folder}/shares/", {"email": BOB, "rights": "view"})
    (invitation,) = ask(bob, "GET", "folders/invitations/").json()["results"]
    assert ask(bob, "POST", f"folders/invitations/{invitation['id']}/accept/", {}).ok
    assert lab.files(bob, folder, "GET", "/content?path=model.txt").text == "weights-42\nmore\n"
    writes = [
        ("directories/", {"path": "d"}),
        ("deletions/", {"paths": ["model.txt"]}),
        ("ticket/", {"rights": "edit"}),
    ]
    writes += [("moves/", {"source": "model.txt", "target": "x"}), ("copies/", {"source": "model.txt", "target": "x"})]
    for verb, body in writes:
        answer = ask(bob, "POST", f"folders/{folder}/{verb}", body)
        assert answer.status_code == 403, (verb, answer.text)
    assert lab.files(bob, folder, "PUT", "/content?path=bob", data=b"x").status_code == 403
    assert lab.files(bob, folder, "PUT", "/archive", data=b"").status_code == 403

    too_much = ask(
        bob, "POST", "sessions/", {"image": lab.image, **_WISH, "mounts": [{"folder": folder, "rights": "edit"}]}
    )
    assert too_much.status_code in (400, 403, 409, 422), too_much.text
    for agent in (lab.first, lab.second):
        reader = lab.launch(
            bob, f"read-{agent}", agent, mounts=[{"folder": folder, "target": "corpus", "rights": "view"}]
        )
        with bob.terminal(reader["id"]) as terminal:
            terminal.run("cat ~/corpus/model.txt", "weights-42")
            for attempt in ("echo x > ~/corpus/model.txt", "rm -f ~/corpus/model.txt", "mkdir ~/corpus/d"):
                terminal.run(attempt, "Read-only file system")
        bob.end(reader["id"])
    until(lambda: alice.folder(folder)["used_bytes"], 90, "the folder is measured after its use")
    lab.platform.audit()
