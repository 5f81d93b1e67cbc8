"""Programs that nobody here wrote, as they are, against the platform as processes.

They get their addresses and commands from REST, resolve names as the system does, and send an access token.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest
from websockets.sync.client import connect

from tests.agent.interpreters import CACHE
from tests.foreign.packages import ensure_foreign_programs
from tests.patience import patient, until
from tests.system.client import Body
from tests.system.platform import ROOT, Platform, free_port
from tests.system.served import Served

pytestmark = [pytest.mark.system, pytest.mark.ci, pytest.mark.timeout(1200)]
_MADE_WITHIN = _STARTED_WITHIN = 600.0
_CODE = "import os; print(os.environ['BACKENDAI_SESSION_NAME'], 6 * 7)"
_UPLOAD = """
import os, sys
from tusclient.client import TusClient
client = TusClient(sys.argv[1] + "/uploads", headers={"Authorization": "Bearer " + os.environ["BAI_TOKEN"]})
client.uploader(sys.argv[2], chunk_size=1_000_000, metadata={"path": sys.argv[3]}).upload()
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with native sessions, once the environment with their JupyterLab is there."""
    made = CACHE / "native"
    subprocess.run(
        [sys.executable, "bin/build-native", "--into", made], cwd=ROOT, check=True, timeout=patient(_MADE_WITHIN)
    )
    extra = {"BACKENDAI_AGENT_ENVIRONMENTS": str(made), "BACKENDAI_AGENT_NATIVE_SERVING": "yes"}
    with Platform(tmp_path_factory.mktemp("foreign"), backend="process", images={}, extra=extra) as platform:
        yield platform


@pytest.fixture(scope="module")
def lab(platform: Platform) -> Iterator[Body]:
    """The app JupyterLab of a session with the name ``there``, which nobody has opened."""
    wish = {"image": "python", "resources": {"cpu": "1", "mem": "1g"}}
    session = platform.client.wait_until_running(platform.client.launch("there", **wish)["id"])
    apps = platform.client._get(f"sessions/{session['id']}/apps/").json()["results"]
    yield next(one for one in apps if one["name"] == "jupyterlab")
    platform.client.end(session["id"])


@pytest.fixture
def programs(platform: Platform, tmp_path: Path) -> Mapping[str, str]:
    """The environment of a person's shell."""
    return {
        "PATH": f"{ensure_foreign_programs()}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "BAI_TOKEN": platform.client.token,
    }


def run_cell(url: str, headers: Mapping[str, str], *, query: str = "") -> str:
    """Run a cell as JupyterLab's pages do at this server; returns what it prints."""
    with httpx.Client(base_url=url, headers=dict(headers), timeout=patient(120), trust_env=False) as server:
        until(lambda: server.get("/api/kernelspecs").status_code == 200, _STARTED_WITHIN, "the server answers")
        made = server.post("/api/kernels", json={"name": "python3"})
        assert made.status_code == 201, made.text
        kernel = made.json()["id"]
        message: dict[str, Any] = {
            "header": {"msg_id": uuid4().hex, "session": uuid4().hex, "msg_type": "execute_request", "version": "5.3"},
            "parent_header": {},
            "metadata": {},
            "content": {"code": _CODE, "silent": False},
            "channel": "shell",
        }
        message["header"] |= {"username": "", "date": "2026-01-01T00:00:00Z"}
        address = f"ws{url.removeprefix('http')}/api/kernels/{kernel}/channels{query}"
        told = {} if query else headers
        with connect(address, additional_headers=told, open_timeout=patient(60), proxy=None) as channel:
            channel.send(json.dumps(message))
            printed = ""
            while True:
                said = json.loads(channel.recv(timeout=patient(120)))
                if said["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                    continue
                if said["msg_type"] == "stream":
                    printed += said["content"]["text"]
                if said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
                    break
        assert server.delete(f"/api/kernels/{kernel}").status_code == 204
    return printed


@contextmanager
def running(command: str, environ: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Run a command of a shell until the end of the context."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=dict(environ),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        except BaseException as error:
            error.add_note((folder / "output").read_text()[-4000:])
            raise
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_jupyterlab_of_ones_own_runs_its_kernels_in_the_session(
    lab: Body, programs: Mapping[str, str], tmp_path: Path
) -> None:
    port = free_port()
    more = f"--no-browser --allow-root --port={port} --IdentityProvider.token=local"
    with running(f"{lab['gateway_command']} {more}", programs, tmp_path):
        local = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{local}/api/status?token=local"), _STARTED_WITHIN, "the local JupyterLab answers")
        assert run_cell(local, {"Authorization": "token local"}) == "there 42\n"


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_clients_of_jupyter_use_the_session_as_any_server(platform: Platform, lab: Body) -> None:
    token = platform.client.token
    assert run_cell(lab["program_url"], {"Authorization": f"Bearer {token}"}) == "there 42\n"
    # As editors do, which have only the address of an existing server.
    editor = {"Authorization": f"token {token}"}
    assert run_cell(lab["program_url"], editor, query=f"?token={token}") == "there 42\n"
    assert httpx.get(f"{lab['program_url']}/api/status", trust_env=False).status_code == 401


def test_tus_and_httpx_move_files_of_a_folder(platform: Platform, programs: Mapping[str, str], tmp_path: Path) -> None:
    folder = platform.client.post("folders/", {"name": "data"})
    until(lambda: platform.client.folder(folder["id"])["status"] == "READY", 60, "the folder is there")
    content = os.urandom(3 * 2**20 + 1)
    (tmp_path / "large.bin").write_bytes(content)
    words = [f"{ensure_foreign_programs()}/python", "-c", _UPLOAD, folder["files_url"]]
    subprocess.run([*words, tmp_path / "large.bin", "large.bin"], env=dict(programs), check=True, timeout=patient(60))
    headers = {"Authorization": f"Bearer {platform.client.token}"}
    with httpx.Client(headers=headers, timeout=patient(30), trust_env=False) as files:
        assert files.get(f"{folder['files_url']}/content", params={"path": "large.bin"}).content == content
        wrong = files.get(f"{folder['files_url']}/entries", headers={"Authorization": "Bearer bai_wrong"})
        assert (wrong.status_code, wrong.json()["code"]) == (401, "not-entered")


def test_openai_chats_with_an_endpoint_under_both_of_its_addresses(platform: Platform) -> None:
    served = Served(platform, replicas=1)
    served.wait(1)
    messages: Any = [{"role": "user", "content": "Hello"}]
    own, common = f"{served.endpoint['program_url']}/v1", served.endpoint["common_url"]
    for url in (own, common):
        http = openai.DefaultHttpxClient(trust_env=False)
        with openai.OpenAI(base_url=url, api_key=served.token, timeout=patient(60), http_client=http) as client:
            if url == common:
                assert [one.id for one in client.models.list()] == ["chat"]
            whole = client.chat.completions.create(model="chat", messages=messages)
            pieces = list(client.chat.completions.create(model="chat", messages=messages, stream=True))
        assert whole.choices[0].message.content and len(pieces) > 1
    platform.client._send("DELETE", served.path)
