"""Images that the real engine makes of kernels: what is in them, what is not, and that nothing is left of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from docker import APIClient
from docker.errors import APIError

from backendai.agent.backends.base import BackendError, KernelGone
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.base.wire.images import DEPLOYMENT_LABEL, ID_LABEL, CommitSpec
from backendai.base.wire.messages import KernelSpec
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell

pytestmark = pytest.mark.docker
SECRET = "s3cret-of-the-session"
REFERENCE = "local/backendai-test:tiny-customized_"


@pytest.fixture(autouse=True)
def nothing_is_left(engine: APIClient, deployment: str) -> Iterator[None]:
    yield
    assert not engine.images(all=True, filters={"label": [f"{DEPLOYMENT_LABEL}={deployment}"]})


def commit_of(spec: KernelSpec, **over: Any) -> CommitSpec:
    key = uuid4()
    labels = {ID_LABEL: str(key), DEPLOYMENT_LABEL: spec.deployment}
    fields = {"reference": f"{REFERENCE}{key.hex[:12]}", "labels": labels, "generation": spec.generation}
    return CommitSpec.model_validate({"kernel_id": spec.kernel_id, **fields, **over})


def write(engine: APIClient, spec: KernelSpec, command: str) -> None:
    made = engine.exec_create(f"krn-{spec.kernel_id}", ["sh", "-c", command], user="0")
    output = engine.exec_start(made["Id"])
    assert engine.exec_inspect(made["Id"])["ExitCode"] == 0, output


def test_the_image_holds_what_the_session_wrote_and_nothing_that_it_was_told(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(environ={"TOKEN": SECRET, "BACKENDAI_ACCESS_KEY": "AKIASESSION"}, session_name="named-session")
    backend.start(spec)
    write(engine, spec, "mkdir -p /opt/own; echo kept > /opt/own/file; rm /bin/yes")
    shell(engine, spec.kernel_id, "echo home > /home/work/mine")
    commit = commit_of(spec)
    made = backend.commit(commit)
    image = engine.inspect_image(commit.reference)
    assert made.size_bytes == image["Size"] > 0
    assert backend.commit(commit) == made and engine.inspect_image(commit.reference)["Id"] == image["Id"]
    said = json.dumps([image, engine.history(commit.reference)])
    for word in (
        SECRET,
        "TOKEN",
        "AKIASESSION",
        "named-session",
        str(spec.session_id),
        "BACKENDAI_",
        str(spec.kernel_id),
    ):
        assert word not in said
    base = engine.inspect_image(spec.image)["Config"]
    assert {name: image["Config"][name] for name in ("Env", "Cmd", "Entrypoint", "User", "WorkingDir")} == {
        name: base[name] for name in ("Env", "Cmd", "Entrypoint", "User", "WorkingDir")
    }
    assert image["Config"]["Labels"] == (base["Labels"] or {}) | commit.labels

    other = new_spec(image=commit.reference)
    backend.start(other)
    _, output = shell(engine, other.kernel_id, 'cat /opt/own/file; ls /home/work; test -e /bin/yes; echo "[$TOKEN] $?"')
    assert output.split("\n")[:2] == ["kept", "[] 1"]
    assert not backend.drop_image(commit.reference), "a container uses it"
    backend.remove(other.kernel_id)
    assert backend.drop_image(commit.reference)
    assert backend.drop_image(commit.reference), "gone already"


def test_an_image_that_the_portal_did_not_make_is_never_removed(
    backend: DockerBackend, neighbour: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec()
    assert not backend.drop_image(spec.image)
    backend.start(spec)
    commit = commit_of(spec)
    backend.commit(commit)
    assert not neighbour.drop_image(commit.reference)
    assert backend.has_image(spec.image) and backend.has_image(commit.reference)
    assert backend.drop_image(commit.reference)


def test_what_is_gone_out_of_date_or_too_large_is_refused_with_the_numbers(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(generation=2)
    with pytest.raises(KernelGone):
        backend.commit(commit_of(spec))
    backend.start(spec)
    with pytest.raises(KernelGone):
        backend.commit(commit_of(spec, generation=1))
    write(engine, spec, "head -c 3000000 /dev/zero > /big")
    with pytest.raises(BackendError, match=r"2\.86 MiB .* at most 1 MiB") as refused:
        backend.commit(commit_of(spec, most_bytes=2**20))
    assert refused.value.code == "too-large"
    backend.stop(spec.kernel_id, grace=0)
    with pytest.raises(KernelGone):
        backend.commit(commit_of(spec))


def test_an_engine_that_keeps_the_sessions_variables_gives_no_image_and_a_broken_attempt_is_swept(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise APIError("no layers in the archive")

    spec = new_spec(environ={"TOKEN": SECRET})
    backend.start(spec)
    commits = backend._commits
    monkeypatch.setattr(commits, "_load", refuse)
    if "ContainerConfig" in engine.inspect_image(spec.image):  # an engine that writes down what the container was
        with pytest.raises(BackendError, match="without the session's variables"):
            backend.commit(commit_of(spec))
    monkeypatch.setattr("backendai.agent.backends.docker.commits._forget", lambda *_: None)
    monkeypatch.setattr("backendai.agent.backends.docker.commits._left_over", lambda *_: ["TOKEN"])
    with pytest.raises(BackendError, match="TOKEN"):
        backend.commit(commit_of(spec))
    monkeypatch.undo()
    backend.sweep({spec.kernel_id})


def test_what_is_emptied_for_such_an_engine_holds_nothing_of_the_session(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise APIError("no layers in the archive")

    spec = new_spec(environ={"TOKEN": SECRET, "PATH": "/elsewhere:/bin"})
    backend.start(spec)
    monkeypatch.setattr(backend._commits, "_load", refuse)
    # This engine's other copy of the variables is looked at in the test above.
    monkeypatch.setattr("backendai.agent.backends.docker.commits._PARTS", ("Config",))
    commit = commit_of(spec)
    backend.commit(commit)
    config = engine.inspect_image(commit.reference)["Config"]
    assert SECRET not in json.dumps(config) and "/elsewhere" not in json.dumps(config)
    assert str(spec.session_id) not in json.dumps(config)
    assert backend.drop_image(commit.reference)
