"""A real model: two containers of the image ``serve`` behind an endpoint, and OpenAI's own client. ``packages``: its
server and model on the tiny image, which takes no build."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.images.package_images import ensure_serve_image
from tests.patience import patient, until
from tests.system.client import fresh
from tests.system.platform import READY_WITHIN, ROOT, Platform

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.ci, pytest.mark.timeout(900)]
IMAGE = "local/backendai-serve:latest"
MODEL = "smollm2"
QUESTION: Any = [{"role": "user", "content": "Name the capital of France in one word."}]


@pytest.fixture(scope="module", params=["packages", pytest.param("built", marks=pytest.mark.long)])
def image(request: pytest.FixtureRequest) -> str:
    if request.param == "packages":
        return ensure_serve_image()
    if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
        subprocess.run([ROOT / "bin" / "build-images", "--only", "serve"], check=True)
    return IMAGE


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Platform]:
    extra = {"BACKENDAI_AGENT_SLOTS": "cpu=4,mem=4g"}
    with Platform(tmp_path_factory.mktemp("serve"), images={"serve": image}, extra=extra) as platform:
        yield platform


def chat(client: openai.OpenAI) -> tuple[int, str]:
    """Return how many pieces an answer came in, and its text."""
    stream = client.chat.completions.create(model=MODEL, messages=QUESTION, stream=True, max_tokens=24, temperature=0)
    words = [piece.choices[0].delta.content or "" for piece in stream if piece.choices]
    return len(words), "".join(words)


def test_a_language_model_streams_chats_from_two_containers(platform: Platform) -> None:
    client = platform.client
    revision = {"image": "serve", "command": "exec serve-model --threads 1", "model_name": MODEL}
    revision |= {"resources": {"cpu": 1, "mem": "1g"}, "probe_path": "/health"}
    endpoint = client.post("endpoints/", {"name": fresh("chat"), "minimum": 2, "maximum": 2, **revision})
    path = f"endpoints/{endpoint['id']}/"
    token = client.post(f"{path}tokens/", {"name": "test"})["token"]
    replicas = lambda: client._get(f"{path}replicas/").json()["results"]  # noqa: E731
    until(
        lambda: [one["state"] for one in replicas()] == ["ready"] * 2,
        2 * READY_WITHIN,
        "two replicas are ready",
        last=replicas,
    )
    host, _, port = endpoint["common_url"].partition("://")[2].partition("/")[0].rpartition(":")
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key=token,
        default_headers={"Host": f"{host}:{port}"},
        max_retries=2,  # as usual: a server may close a connection just as the next request comes
        timeout=patient(120),
        http_client=openai.DefaultHttpxClient(trust_env=False),
    ) as asks:
        assert [one.id for one in asks.models.list()] == [MODEL]
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: chat(asks), range(8)))
    assert all(pieces > 1 and text.strip() for pieces, text in answers)
    client._send("DELETE", path)
    until(lambda: not client._get("sessions/?status=RUNNING").json()["results"], READY_WITHIN, "all replicas ended")
