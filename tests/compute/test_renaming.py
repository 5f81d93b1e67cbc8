"""Another name for a session."""

from __future__ import annotations

import pytest
from django.test import Client

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.renaming import rename_session
from tests.cast import Cast
from tests.factories import make_session

pytestmark = pytest.mark.django_db


def test_the_owner_and_administrators_rename_a_live_session_and_it_is_written_down(cast: Cast) -> None:
    session = make_session(cast.alice, name="first-try")
    renamed = rename_session(session, cast.alice, "second.try")
    assert (renamed.name, renamed.version) == ("second.try", session.version + 1)
    rename_session(renamed, cast.dana, "by-dana")
    mine, hers = AuditEntry.objects.filter(action="session.rename").order_by("pk")
    assert mine.details == {"changes": {"name": ["first-try", "second.try"]}}
    assert (hers.details["actor"], hers.details["owner"]) == ("dana@example.com", "alice@example.com")


@pytest.mark.parametrize("name", ["ab", "-x-", "a b c", "x" * 65, "<script>"])
def test_a_name_that_breaks_the_rule_changes_nothing(cast: Cast, name: str) -> None:
    session = make_session(cast.alice, name="keeps-this")
    with pytest.raises(UserError) as refused:
        rename_session(session, cast.alice, name)
    assert refused.value.field == "name"
    assert ComputeSession.objects.get().name == "keeps-this"


def test_a_taken_name_and_an_ended_session_are_conflicts(cast: Cast) -> None:
    session, other = make_session(cast.alice, name="one-run"), make_session(cast.alice, name="other-run")
    make_session(cast.bob, name="bobs-run")
    with pytest.raises(Conflict) as taken:
        rename_session(session, cast.alice, other.name)
    assert (taken.value.field, taken.value.code) == ("name", "name-taken")
    assert rename_session(session, cast.alice, "bobs-run").name == "bobs-run"
    ComputeSession.objects.filter(pk=session.pk).update(status="TERMINATED")
    with pytest.raises(Conflict) as ended:
        rename_session(session, cast.alice, "too-late")
    assert ended.value.code == "already-ended"


def test_it_answers_over_rest(cast: Cast, client: Client) -> None:
    session = make_session(cast.alice, name="over-rest")
    address = f"/api/v1/sessions/{session.pk}/rename/"
    client.force_login(cast.alice)
    answer = client.post(address, {"name": "renamed"}, content_type="application/json")
    assert (answer.status_code, answer.json()["name"]) == (200, "renamed")
    wrong = client.post(address, {"name": "no!"}, content_type="application/json")
    assert wrong.status_code == 400
    client.force_login(cast.bob)
    assert client.post(address, {"name": "stolen"}, content_type="application/json").status_code == 404
