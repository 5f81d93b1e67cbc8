"""The page of the machines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from backendai.accounts.models import User
from tests.cast import Cast
from tests.factories import make_agent, make_running_session

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def test_it_exists_for_superadmins_only(cast: Cast, browse: Browse) -> None:
    assert browse(cast.alice).get(reverse("web:agents")).status_code == 404
    assert browse(cast.dana).get(reverse("web:agents")).status_code == 200


def test_it_shows_load_and_notes_in_a_fixed_number_of_queries(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., object]
) -> None:
    note = {"code": "no-swap-limit", "message": "Swap cannot be limited.", "fix": "Boot with <swapaccount=1>."}
    client, agent = browse(cast.dana), make_agent("node-1", notes=[note])
    make_running_session(cast.alice, agent, resources={"cpu": 1, "mem": "1g"})
    for _ in range(3):
        make_agent()
    with django_assert_num_queries(4):  # 2 for who asks, agents, the ledger
        answer = client.get(reverse("web:agents"))
    row = next(row for row in answer.context["rows"] if row.agent.name == "node-1")
    assert [(bar.slot, bar.used_text, bar.total_text) for bar in row.bars] == [
        ("cpu", "1", "4"),
        ("mem", "1 GiB", "8 GiB"),
    ]
    assert row.agent.kernel_count == 1
    assert "Boot with &lt;swapaccount=1&gt;." in answer.content.decode()
