"""A client generated from the OpenAPI document has types that hold, and launches a session."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.api.callers import LAUNCH, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_image

pytest.importorskip("openapi_python_client", reason="not in this environment: bin/install requirements-dev.txt")
pytestmark = [pytest.mark.ci, pytest.mark.timeout(300)]
_NAME = "portal_client"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package of the client lies."""
    folder = tmp_path_factory.mktemp("generated")
    config = folder / "config.json"
    # The generator knows one kind of bytes only; nobody reads what it would format.
    kinds = {"application/zip": "application/octet-stream"}
    config.write_text(json.dumps({"content_type_overrides": kinds, "post_hooks": []}))
    document = settings.BASE_DIR / "docs" / "openapi.yaml"
    command = ["generate", "--path", document, "--meta", "none", "--output-path", folder / _NAME, "--config", config]
    said = _run(folder, "openapi_python_client", *map(str, command), "--fail-on-warning")
    assert said.returncode == 0, said.stdout + said.stderr
    return folder


def test_its_types_hold(folder: Path) -> None:
    said = _run(folder, "mypy", _NAME)
    assert said.returncode == 0, said.stdout


@pytest.mark.django_db(transaction=True)
def test_it_launches_and_ends_a_session(
    cast: Cast, folder: Path, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_agent()
    make_image()
    monkeypatch.syspath_prepend(str(folder))
    client_class, problem, launch, end, status = _named(
        "client.AuthenticatedClient",
        *[f"models.{name}" for name in ("Problem", "LaunchRequest", "TerminateRequest", "SessionsListStatusItem")],
    )
    create, read, listed, terminate = _named(
        *[f"api.sessions.sessions_{verb}.sync" for verb in ("create", "get", "list", "terminate")]
    )
    with client_class(base_url=live_server.url, token=Caller(cast.alice).token) as client:
        made = create(client=client, body=launch.from_dict(LAUNCH), idempotency_key="once")
        assert (made.name, made.status, made.owner) == (LAUNCH["name"], "PENDING", "alice@example.com")
        assert create(client=client, body=launch.from_dict(LAUNCH), idempotency_key="once").id == made.id
        assert read(made.id, client=client).to_dict() == made.to_dict()
        assert [session.id for session in listed(client=client, status=[status.PENDING]).results] == [made.id]
        refused = create(client=client, body=launch.from_dict(LAUNCH | {"resources": {"cpu": True}}))
        assert isinstance(refused, problem) and refused.field == "resources.cpu"
        assert terminate(made.id, client=client, body=end(force=True)).status == "CANCELLED"


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)


def _named(*paths: str) -> list[Any]:
    """What the client has under these names."""
    return [
        getattr(importlib.import_module(f"{_NAME}.{path.rpartition('.')[0]}"), path.rpartition(".")[2])
        for path in paths
    ]
