"""A POST that comes again with its Idempotency-Key has the same answer, and no second effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.accounts import answers
from backendai.domain.accounts.models import AccessToken, ResourcePolicy, StoredAnswer
from backendai.portal.loops.repair.retention import delete_expired
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_group, make_image

pytestmark = pytest.mark.django_db
TOKENS, POLICIES = "/api/v1/tokens/", "/api/v1/policies/"
TOKEN = {"name": "laptop"}
KEY = {"Idempotency-Key": "mine-and-secret"}


def said(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_repeated_request_has_the_first_answer_and_the_database_cannot_tell_it(cast: Cast) -> None:
    alice = Caller(cast.alice)
    first, again = (alice.post(TOKENS, TOKEN, **KEY) for _ in range(2))
    assert (first.status_code, again.status_code, first.json()) == (201, 201, again.json())
    assert again["Idempotency-Replayed"] == "true" and "Idempotency-Replayed" not in first
    assert AccessToken.objects.filter(name="laptop").count() == 1
    (row,) = StoredAnswer.objects.values()
    assert not any(secret in str(row) for secret in (first.json()["token"], KEY["Idempotency-Key"], "laptop"))
    assert alice.post(TOKENS, TOKEN, **{"Idempotency-Key": "another"}).json()["id"] != first.json()["id"]
    assert Caller(cast.bob).post(TOKENS, TOKEN, **KEY).json()["id"] != first.json()["id"]
    assert said(alice.post(TOKENS, {"name": "phone"}, **KEY)) == (422, "idempotency-key-reused")


def test_a_refused_request_frees_its_key(cast: Cast) -> None:
    dana = Caller(cast.dana)
    ResourcePolicy.objects.create(name="students")
    assert said(dana.post(POLICIES, {"name": "students"}, **KEY)) == (409, "name-taken")
    assert said(Caller(cast.alice).post(POLICIES, {"name": "students"}, **KEY))[0] in (403, 404)
    ResourcePolicy.objects.filter(name="students").delete()
    assert dana.post(POLICIES, {"name": "students"}, **KEY).status_code == 201


def test_a_request_in_progress_is_refused_until_it_is_abandoned(cast: Cast) -> None:
    alice = Caller(cast.alice)
    alice.post(TOKENS, TOKEN, **KEY)
    StoredAnswer.objects.update(status=None, sealed="")  # as while the first request is served
    assert said(alice.post(TOKENS, TOKEN, **KEY)) == (409, "request-in-progress")
    StoredAnswer.objects.update(asked_at=timezone.now() - answers.ABANDONED_AFTER)
    assert alice.post(TOKENS, TOKEN, **KEY).status_code == 201
    assert alice.post(TOKENS, TOKEN, **KEY)["Idempotency-Replayed"] == "true"


def test_answers_and_their_number_are_bounded_and_go_after_a_day(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = Caller(cast.alice)
    monkeypatch.setattr(answers, "_LARGEST", 10)
    monkeypatch.setattr(answers, "_MOST_KEPT", 1)
    assert alice.post(TOKENS, TOKEN, **KEY).status_code == 201
    assert said(alice.post(TOKENS, TOKEN, **KEY)) == (409, "already-done")
    assert said(alice.post(TOKENS, TOKEN, **{"Idempotency-Key": "another"})) == (429, "too-many-keys")
    delete_expired(timezone.now() + answers.KEPT_FOR - timedelta(minutes=1))
    assert StoredAnswer.objects.count() == 1
    delete_expired(timezone.now() + answers.KEPT_FOR + timedelta(minutes=1))
    assert not StoredAnswer.objects.exists()


def test_a_launch_keeps_its_key_for_ever_in_its_row(cast: Cast) -> None:
    make_group()
    make_image()
    alice = Caller(cast.alice)
    launch = {"name": "train-1", "image": "python", "resources": {"cpu": 1, "mem": "512m"}}
    assert alice.post(SESSIONS, launch, **KEY).status_code == 201
    again = alice.post(SESSIONS, launch, **KEY)
    assert (again.status_code, again["Idempotency-Replayed"]) == (200, "true")
    assert said(alice.post(SESSIONS, launch | {"name": "train-2"}, **KEY)) == (422, "idempotency-key-reused")
    assert not StoredAnswer.objects.exists()
