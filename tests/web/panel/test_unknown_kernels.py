"""The page of kernels that the database does not know, and the same by REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, UnknownKernel
from tests.cast import Cast
from tests.compute.test_unknown_kernels import unknown_session
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


@pytest.fixture
def agent(cast: Cast) -> Agent:
    return make_agent("gpu-1")


@pytest.fixture
def row(cast: Cast, agent: Agent) -> UnknownKernel:
    unknown_session(cast, agent, name="thesis")
    return UnknownKernel.objects.get()


def page(name: str, *args: Any) -> str:
    return reverse(f"manage:{name}", args=args)


def test_the_page_names_session_owner_and_agent_and_leads_to_both_decisions(
    cast: Cast, browse: Browse, row: UnknownKernel
) -> None:
    body = browse(cast.dana).get(page("unknown-kernels")).content.decode()
    for text in ("thesis", cast.alice.email, "gpu-1", "main1", "running"):
        assert text in body
    assert page("unknown-kernel-adopt", row.pk) in body
    assert page("unknown-kernel-remove", row.pk) in body


def test_a_kernel_of_which_nothing_is_known_can_only_be_removed(cast: Cast, browse: Browse, row: UnknownKernel) -> None:
    UnknownKernel.objects.update(manifest={}, session_id=None)
    body = browse(cast.dana).get(page("unknown-kernels")).content.decode()
    assert "not known" in body
    assert page("unknown-kernel-adopt", row.pk) not in body
    assert browse(cast.dana).get(page("unknown-kernel-adopt", row.pk)).status_code == 404


def test_the_agents_page_says_that_it_takes_nothing_until_it_is_decided(
    cast: Cast, browse: Browse, agent: Agent, row: UnknownKernel
) -> None:
    body = browse(cast.dana).get(page("agent", agent.pk)).content.decode()
    assert "1 kernel that is not in the database" in body
    assert "takes no new sessions until" in body


def test_adopting_asks_and_brings_the_session_back(cast: Cast, browse: Browse, row: UnknownKernel) -> None:
    dana = browse(cast.dana)
    assert cast.alice.email in dana.get(page("unknown-kernel-adopt", row.pk)).content.decode()
    answer = dana.post(page("unknown-kernel-adopt", row.pk), follow=True)
    assert "thesis is adopted" in answer.content.decode()
    assert ComputeSession.objects.get(pk=row.session_id).owner == cast.alice


def test_what_cannot_be_adopted_is_said_and_stays(cast: Cast, browse: Browse, row: UnknownKernel) -> None:
    User.objects.filter(pk=cast.alice.pk).update(is_active=False)
    answer = browse(cast.dana).post(page("unknown-kernel-adopt", row.pk))
    assert answer.status_code == 422
    assert "needs user" in answer.content.decode()
    assert UnknownKernel.objects.filter(pk=row.pk).exists()


def test_removing_asks_and_is_shown_until_the_agent_has_done_it(cast: Cast, browse: Browse, row: UnknownKernel) -> None:
    dana = browse(cast.dana)
    assert "deleted" in dana.get(page("unknown-kernel-remove", row.pk)).content.decode()
    body = dana.post(page("unknown-kernel-remove", row.pk), follow=True).content.decode()
    assert "being removed" in body


def test_the_list_asks_as_often_for_many(
    cast: Cast, browse: Browse, row: UnknownKernel, django_assert_max_num_queries: Any
) -> None:
    dana = browse(cast.dana)
    dana.get(page("unknown-kernels"))
    for generation in range(2, 12):
        UnknownKernel.objects.create(agent=row.agent, kernel_id=row.kernel_id, generation=generation)
    with django_assert_max_num_queries(8):
        assert dana.get(page("unknown-kernels")).status_code == 200


def test_the_same_by_rest(cast: Cast, browse: Browse, row: UnknownKernel) -> None:
    dana = browse(cast.dana)
    (told,) = dana.get("/api/v1/unknown-kernels/").json()["results"]
    assert (told["session_name"], told["owner"], told["agent"]) == ("thesis", cast.alice.email, "gpu-1")
    answer = dana.post(f"/api/v1/unknown-kernels/{row.pk}/adopt/")
    assert (answer.status_code, answer.json()["name"]) == (200, "thesis")
    assert dana.post(f"/api/v1/unknown-kernels/{row.pk}/remove/").status_code == 404
