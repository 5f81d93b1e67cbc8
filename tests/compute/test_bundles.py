"""Questions and reports of an agent that come in one call."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from backendai.base.wire.bundles import BundleDown
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.records.logs import saved_log
from backendai.domain.compute.status import Status
from tests.cast import Cast
from tests.factories import make_agent, make_sessions, place_all

pytestmark = pytest.mark.django_db
TOKEN = "t" * 40


@pytest.fixture
def agent() -> Agent:
    return make_agent(cpu=64, mem="256g", token_digest=sha256(TOKEN.encode()).hexdigest())


def kernels_on(agent: Agent, cast: Cast, number: int) -> list[Kernel]:
    sessions = make_sessions(cast.alice, number)
    place_all(sessions, agent)
    return list(Kernel.objects.filter(session__in=sessions).order_by("pk"))


def call(**said: Any) -> BundleDown:
    client = Client(headers={"authorization": f"Node {TOKEN}"})
    answer = client.post("/node/v1/bundle", json.dumps(said), content_type="application/json")
    assert answer.status_code == 200, answer.content
    return BundleDown.model_validate_json(answer.content)


def word(kernel: Kernel, state: str, **more: Any) -> dict[str, Any]:
    return {"kernel_id": str(kernel.pk), "generation": kernel.generation, "state": state, **more}


def log(kernel: Kernel, text: bytes, *, generation: int | None = None) -> dict[str, Any]:
    said = kernel.generation if generation is None else generation
    return {"kernel_id": str(kernel.pk), "generation": said, "content": base64.b64encode(text).decode()}


def test_a_bundle_does_what_single_calls_do(agent: Agent, cast: Cast) -> None:
    first, second, third = kernels_on(agent, cast, 3)
    down = call(specs=[str(first.pk), str(second.pk), str(uuid4())])
    assert {spec.kernel_id for spec in down.specs} == {first.pk, second.pk}
    assert (
        call(reports=[word(one, "RUNNING", container_id="c") for one in (first, second, third)]).applied == [True] * 3
    )
    ended = word(first, "TERMINATED", exit_code=0, reason="exited")
    down = call(specs=[str(second.pk)], logs=[log(first, b"one\n"), log(second, b"\xff")], reports=[ended])
    assert (down.kept, down.applied, [one.kernel_id for one in down.specs]) == ([True, True], [True], [second.pk])
    first.refresh_from_db()
    assert (first.status, saved_log(first), saved_log(second)) == (
        Status.TERMINATED,
        (b"one\n", False),
        (b"\xff", False),
    )


def test_kernels_of_other_agents_and_of_earlier_generations_are_not_touched(agent: Agent, cast: Cast) -> None:
    (own,) = kernels_on(agent, cast, 1)
    (other,) = kernels_on(make_agent(), cast, 1)
    down = call(
        specs=[str(other.pk)],
        logs=[log(other, b"x"), log(own, b"x", generation=7), log(own, b"first"), log(own, b"again")],
        reports=[word(other, "RUNNING"), word(own, "RUNNING") | {"generation": 7}],
    )
    assert (down.specs, down.applied) == ([], [None, False])
    assert down.kept == [False, False, True, True]
    assert saved_log(other) is None and saved_log(own) == (b"again", False)


def test_the_number_of_queries_does_not_grow_with_the_bundle(
    agent: Agent, cast: Cast, django_assert_max_num_queries: Any
) -> None:
    kernels = kernels_on(agent, cast, 20)
    with django_assert_max_num_queries(40):
        call(specs=[str(one.pk) for one in kernels], reports=[word(one, "RUNNING") for one in kernels])
    with django_assert_max_num_queries(50):
        ends = [word(one, "TERMINATED", exit_code=0, reason="exited") for one in kernels]
        call(logs=[log(one, b"x") for one in kernels], reports=ends)
