"""What differs between a run and the last one of its name that succeeded."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.pipelines.comparing import differences, last_good
from backendai.domain.pipelines.models import Run
from tests.cast import Cast
from tests.factories import make_agent
from tests.pipelines.world import launch_text, play

pytestmark = pytest.mark.django_db

TEXT = """
kind: pipeline
name: %s
params: {lr: {type: number, default: 0.1}}
defaults: {image: python, resources: {cpu: %s, mem: 512m}}
steps:
  train: {startup_command: train, matrix: {seed: [%s]}, environ: {API_KEY: %s}}
  report: {startup_command: report, after: {train: %s}}
"""


def run_of(
    cast: Cast, *, name: str = "nightly", cpu: str = "1", seeds: str = "1, 2", key: str = "topaz", when: str = "success"
) -> Run:
    return launch_text(cast.alice, TEXT % (name, cpu, seeds, key, when), lr=float(cpu))


def test_a_run_is_compared_with_the_last_of_its_name_that_succeeded(
    cast: Cast, django_assert_max_num_queries: Any
) -> None:
    first = play(run_of(cast))
    play(run_of(cast, name="other"))
    failed = play(run_of(cast, cpu="2"), lambda session: "task-failed")
    assert last_good(first) is None
    run = run_of(cast, cpu="2", seeds="1, 2, 3", key="bbb", when="any")
    assert last_good(run) == first and last_good(failed) == first
    ComputeSession.objects.filter(run_id=first.pk).update(image_digest="sha256:old")
    play(run)
    ComputeSession.objects.filter(run_id=run.pk).update(image_digest="sha256:new")
    with django_assert_max_num_queries(8):
        found = {one.where: (one.before, one.now) for one in differences(run, first)}
    assert found["params.lr"] == ("1.0", "2.0")
    assert found["steps.train.resources.cpu"] == ("1", "2")
    assert found["steps.train.elements"] == ("2", "3")
    assert found["steps.report.after"] == ("train: success", "train: any")
    assert found["steps.train.image digest"] == ("sha256:old", "sha256:new")
    assert found["steps.train.environ.API_KEY"] == ("••••", "••••"), "that it differs, not what it is"
    assert "steps.train.startup_command" not in found


def test_other_accelerators_and_another_template_are_differences(cast: Cast) -> None:
    models = {"GPU-0": {"model": "H100"}, "GPU-1": {"model": "A100"}}
    agent = make_agent(live={"devices": models})
    first, run = (play(run_of(cast)) for _ in range(2))
    for one, device in ((first, "GPU-0"), (run, "GPU-1")):
        kernels = Kernel.objects.filter(session__run_id=one.pk)
        assert kernels.update(agent=agent, devices={"cuda.device": {device: "1"}})
        Run.objects.filter(pk=one.pk).update(template=f"private/nightly@{device[-1]}")
        one.refresh_from_db()
    found = {one.where: (one.before, one.now) for one in differences(run, first)}
    assert found["steps.train.accelerators"] == ("H100", "A100")
    assert found["template"] == ("private/nightly@0", "private/nightly@1")


def test_the_page_and_rest_say_the_same(cast: Cast) -> None:
    first = play(run_of(cast))
    run = play(run_of(cast, cpu="2"))
    client = Client()
    client.force_login(cast.alice)
    page = client.get(f"/runs/{run.pk}/compare/").content.decode()
    assert "steps.train.resources.cpu" in page and "topaz" not in page
    answer = client.get(f"/api/v1/runs/{run.pk}/compare/").json()
    assert answer["before"] == str(first.pk)
    assert {"where": "steps.report.resources.cpu", "before": "1", "now": "2"} in answer["differences"]
    with_itself = client.get(f"/api/v1/runs/{run.pk}/compare/?with={run.pk}").json()
    assert with_itself == {"before": str(run.pk), "differences": []}
    assert "No earlier run" in client.get(f"/runs/{first.pk}/compare/").content.decode()
    client.force_login(cast.charlie)
    assert client.get(f"/runs/{run.pk}/compare/").status_code == 404
    assert client.get(f"/api/v1/runs/{run.pk}/compare/").status_code == 404
