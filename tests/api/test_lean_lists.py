"""Lists do not read the large columns of their rows: 40 answers of 30 KB at once took 800 MB."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from backendai.domain.compute.models import SessionNotice
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session
from tests.pipelines.world import ARRAY

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("address", "columns"),
    [
        ("/api/v1/templates/", ["document", "text"]),
        ("/templates/", ["document", "text"]),
        ("/api/v1/runs/", ["text"]),
        ("/api/v1/me/ssh-config/", ["environ", "spec", "startup_command"]),
        ("/api/v1/sessions/", ["spec"]),
        ("/notifications/", ["environ", "spec"]),
    ],
)
def test_a_list_leaves_large_columns_in_the_database(cast: Cast, address: str, columns: list[str]) -> None:
    make_agent(group=make_group())
    make_image()
    alice = Caller(cast.alice)
    document = {"image": "python", "resources": {"cpu": 1, "mem": "1g"}}
    assert alice.post("/api/v1/templates/", {"name": "train", "document": document}).status_code == 201
    alice.post("/api/v1/runs/", {"name": "sweep", "document": ARRAY})
    session = make_running_session(cast.alice, environ={"A": "b"})
    SessionNotice.objects.create(session=session, owner=cast.alice, kind="started")
    browser: Any = Client()
    browser.force_login(cast.alice)
    with CaptureQueriesContext(connection) as queries:
        answer = (alice if address.startswith("/api/") else browser).get(address)
    assert answer.status_code == 200
    read = " ".join(query["sql"].partition(" FROM ")[0] + "," for query in queries)
    assert [column for column in columns if re.search(rf', "\w+"\."{column}",|SELECT "\w+"\."{column}",', read)] == []
