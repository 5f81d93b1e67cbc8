"""The marks of networks that no kernel has used, where their folder cannot be used: a fault of the machine alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from backendai.agent.backends.base import ImageNotFound
from backendai.agent.backends.docker.backend import DockerBackend
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import holders_of, started_at
from tests.agent.networks.warm_tools import (
    Reopen,
    network_of,
    stopped_filling,
    unused,
)
from tests.patience import until

pytestmark = pytest.mark.docker


def test_it_starts_kernels_where_the_folder_of_marks_cannot_be_made(
    reopened: Reopen,
    engine: APIClient,
    deployment: str,
    new_spec: NewSpec,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "networks").touch()
    backend = reopened()
    until(lambda: "no network could be made in advance: The agent cannot write the mark" in caplog.text)
    assert started_at(backend, new_spec())
    backend.sweep({kernel.kernel_id for kernel in backend.kernels()})
    assert holders_of(engine, deployment) == []


def test_it_makes_no_network_that_it_cannot_mark(
    backend: DockerBackend,
    engine: APIClient,
    deployment: str,
    new_spec: NewSpec,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ready = unused(backend)
    folder = tmp_path / "n1" / "networks"
    shutil.rmtree(folder)
    folder.touch()
    spec = new_spec()
    assert started_at(backend, spec), "what cannot be unmarked is given to nobody"
    assert network_of(engine, spec) == backend._networks.shared
    until(lambda: "cannot write the mark" in caplog.text)
    assert set(holders_of(engine, deployment)) == set(ready)
    backend.sweep({spec.kernel_id})
    assert holders_of(engine, deployment) == []


def test_it_says_that_an_image_is_missing_also_where_marks_cannot_be_made_any_more(
    backend: DockerBackend, engine: APIClient, deployment: str, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_filling(backend)
    marks = backend._prepared._marks
    take = marks.take

    def take_the_last(holder_id: Any) -> bool:
        taken = take(holder_id)
        shutil.rmtree(marks._folder)
        marks._folder.touch()
        return taken

    monkeypatch.setattr(marks, "take", take_the_last)
    first, second = unused(backend)
    with pytest.raises(ImageNotFound):
        backend.start(new_spec(image="local/backendai-test:no-such-image"))
    monkeypatch.undo()
    assert unused(backend) == [second]
    backend.sweep(set())
    assert first not in holders_of(engine, deployment)
