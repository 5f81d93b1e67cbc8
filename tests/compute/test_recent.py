"""The recent history of the launch form."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.base.core.secret_names import looks_secret
from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession, LaunchRecord
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.domain.compute.services.launching.recent import (
    KEPT,
    MOST_PINNED,
    delete_launch,
    kept_parameters,
    launch_and_remember,
    parameters_of,
    pin_launch,
    recent_launch,
    recent_launches,
    rename_launch,
)
from backendai.domain.compute.spec import SessionSpec
from tests.cast import Cast
from tests.factories import make_agent, make_image

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def site(cast: Cast) -> Cast:
    make_image()
    make_agent(cpu=64, mem="64g")
    return cast


def launch(user: User, name: str = "", *, now: datetime = NOW, count: int = 1, key: str = "", **over: Any) -> None:
    spec = SessionSpec(**({"image": "python", "name": name, "resources": {"cpu": 1, "mem": "512m"}} | over))
    launch_and_remember(user, spec, count, idempotency_key=key or None, now=now)


def names(user: User) -> list[str]:
    return [record.name for record in recent_launches(user)]


def test_it_keeps_the_five_newest_and_what_is_pinned_beside_them(site: Cast) -> None:
    for number in range(KEPT):
        launch(site.alice, f"run-{number}", now=NOW + timedelta(minutes=number))
    pin_launch(site.alice, recent_launches(site.alice)[-1], True)
    for number in range(KEPT, 2 * KEPT):
        launch(site.alice, f"run-{number}", now=NOW + timedelta(minutes=number))
    assert names(site.alice) == ["run-0", "run-9", "run-8", "run-7", "run-6", "run-5"]
    pin_launch(site.alice, recent_launches(site.alice)[0], False)
    assert names(site.alice)[-1] == "run-0", "unpinning alone loses nothing"
    launch(site.alice, "run-10", now=NOW + timedelta(hours=1))
    assert names(site.alice) == ["run-10", "run-9", "run-8", "run-7", "run-6"]


def test_it_keeps_a_launch_once_and_only_if_it_was_made(site: Cast) -> None:
    for _ in range(2):
        launch(site.alice, "twice", key="the-same")
    with pytest.raises(UserError):
        launch(site.alice, "too-large", resources={"cpu": 999, "mem": "1g"})
    launch(site.alice, "many", count=2, now=NOW + timedelta(minutes=1))
    assert names(site.alice) == ["many", "twice"]
    assert recent_launches(site.alice)[0].parameters["count"] == 2
    assert ComputeSession.objects.count() == 3


def test_a_launch_without_a_name_is_called_as_its_session_but_asks_for_none(site: Cast) -> None:
    launch(site.alice)
    record = recent_launches(site.alice)[0]
    assert record.name == ComputeSession.objects.get().name
    assert record.parameters == {"version": 1, "image": "python", "resources": {"cpu": 1, "mem": "512m"}}


def test_it_keeps_no_value_that_looks_like_a_secret_and_no_address_of_others(site: Cast) -> None:
    environ = {"API_KEY": "s3cret", "EPOCHS": "3", "DB": "postgres://me:s3cret@db/x"}
    launch(site.dana, "for-alice", environ=environ, owner=site.alice.email)
    record = LaunchRecord.objects.get()
    assert record.owner == site.dana, "the author of the form finds it again"
    assert record.parameters["environ"] == {"API_KEY": None, "EPOCHS": "3", "DB": None}
    assert record.parameters["owner"] == str(site.alice.pk)
    stored = str(list(LaunchRecord.objects.values_list("parameters", flat=True)))
    assert "s3cret" not in stored
    assert site.alice.email not in stored


def test_a_session_is_told_in_the_words_of_a_request(site: Cast) -> None:
    launch(site.alice, "first-one", environ={"API_KEY": "s3cret"}, cluster_size=2)
    told = parameters_of(ComputeSession.objects.get())
    assert (told["image"], told["environ"], told["cluster_size"]) == ("python", {"API_KEY": "s3cret"}, 2)
    assert {"name", "priority", "startup_command", "cluster_mode"}.isdisjoint(told)


def test_moments_and_spans_survive_being_stored(site: Cast) -> None:
    later = NOW + timedelta(days=1)
    batch = {"session_type": "batch", "startup_command": "true", "starts_at": later}
    launch(site.alice, "later", batch_timeout=timedelta(hours=2), **batch)
    kept = LaunchRecord.objects.get().parameters
    assert datetime.fromisoformat(kept["starts_at"]) - later < timedelta(milliseconds=1)
    assert kept["batch_timeout"] == 7200.0
    assert kept_parameters(SessionSpec(image="python")) == {"version": 1, "image": "python"}


def test_only_its_owner_finds_it(site: Cast) -> None:
    launch(site.alice, "mine")
    record = recent_launches(site.alice)[0]
    for other in (site.bob, site.charlie, site.dana):
        assert recent_launches(other) == []
        with pytest.raises(NotFound):
            recent_launch(other, record.pk)


def test_renaming_follows_the_rule_for_sessions_and_names_the_next_one(site: Cast) -> None:
    launch(site.alice)
    record = recent_launches(site.alice)[0]
    for wrong in ("ab", "-x-y", "a b c", "x" * 65):
        with pytest.raises(UserError) as error:
            rename_launch(site.alice, record, wrong)
        assert error.value.code == "invalid-name"
    rename_launch(site.alice, record, "nightly")
    record.refresh_from_db()
    assert (record.name, record.parameters["name"]) == ("nightly", "nightly")
    delete_launch(site.alice, record)
    assert recent_launches(site.alice) == []
    actions = AuditEntry.objects.filter(target_type="recent-launch").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["recent-launch.change", "recent-launch.delete"]


def test_there_is_an_end_to_pinning(site: Cast) -> None:
    kept = [LaunchRecord(owner=site.alice, name=f"r-{n}", parameters={}, is_pinned=True) for n in range(MOST_PINNED)]
    LaunchRecord.objects.bulk_create(kept)
    launch(site.alice, "one-more")
    record = LaunchRecord.objects.get(is_pinned=False)
    with pytest.raises(Conflict) as error:
        pin_launch(site.alice, record, True)
    assert error.value.code == "too-many-pinned"


def test_it_goes_with_its_person(site: Cast) -> None:
    LaunchRecord.objects.create(owner=site.bob, name="bobs", parameters={})
    LaunchRecord.objects.create(owner=site.alice, name="alices", parameters={})
    site.bob.is_active = False
    site.bob.save()
    purge_user(site.dana, site.bob, typed=site.bob.email, now=NOW)
    assert [record.name for record in LaunchRecord.objects.all()] == ["alices"]


def test_it_knows_what_looks_like_a_secret() -> None:
    for name in ("API_KEY", "HF_TOKEN", "DB_PASSWORD", "GITHUB_PAT", "secret", "Authorization", "MY_PASS"):
        assert looks_secret(name), name
    for name in ("EPOCHS", "PATH", "AUTHOR", "N_PASSES", "DATA_DIR"):
        assert not looks_secret(name), name
    assert looks_secret("PROXY", "http://me:s3cret@proxy:3128")
    assert not looks_secret("PROXY", "http://proxy:3128")
