"""What administrators do by REST as on their pages, and the bell: audit log, queue, announcements, images, factors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Login, User
from backendai.domain.activity.access_notices import notify_of_access
from backendai.domain.activity.models import AccessNotice, AuditEntry
from backendai.domain.activity.notices import NoticeKind
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Announcement
from backendai.domain.compute.models import ComputeSession, SessionNotice
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_group, make_session

pytestmark = pytest.mark.django_db
AUDIT, NEWS, IMAGES, BELL = (f"/api/v1/{one}/" for one in ("audit-entries", "announcements", "images", "me/bell"))


@pytest.fixture
def dana(cast: Cast) -> Caller:
    return Caller(cast.dana)


@pytest.fixture
def alice(cast: Cast) -> Caller:
    return Caller(cast.alice)


def actions(caller: Caller, **filters: Any) -> list[str]:
    return [one["action"] for one in caller.get(AUDIT, **filters).json()["results"]]


def test_superadmins_search_the_audit_log(dana: Caller, alice: Caller, cast: Cast) -> None:
    AuditEntry.objects.all().delete()
    audit(cast.alice.pk, "session.create", "session", ["s1"], name="train")
    audit(None, "refused.set-role", "user", [cast.bob.pk])
    AuditEntry.objects.filter(action="session.create").update(at=timezone.now() - timedelta(days=2))
    assert actions(dana) == ["refused.set-role", "session.create"]
    assert actions(dana, refused="true") == actions(dana, target_type="user") == ["refused.set-role"]
    yesterday = (timezone.now() - timedelta(days=1)).isoformat()
    for chosen in ({"actor": "ALICE@example.com"}, {"action": "session."}, {"target_id": "s1"}, {"before": yesterday}):
        assert actions(dana, **chosen) == ["session.create"]
    entry = dana.get(AUDIT, target_id="s1").json()["results"][0]
    assert (entry["actor"], entry["details"]) == ("alice@example.com", {"name": "train"})
    assert alice.get(AUDIT).status_code == 404


def test_administrators_see_the_queue_in_its_order(dana: Caller, alice: Caller, cast: Cast) -> None:
    for name, position in (("second", 2), ("unseen", None), ("first", 1)):
        ComputeSession.objects.filter(pk=make_session(cast.alice, name=name).pk).update(queue_position=position)
    group = ComputeSession.objects.first().resource_group.name  # type: ignore[union-attr]
    make_group("empty")
    address = f"/api/v1/resource-groups/{group}/queue/"
    assert dana.get("/api/v1/resource-groups/empty/queue/").json()["results"] == []
    with CaptureQueriesContext(connection) as queries:
        rows = dana.get(address).json()["results"]
    assert [one["name"] for one in rows] == ["first", "second", "unseen"]
    assert (rows[0]["owner"], rows[0]["never_starts"]) == ("alice@example.com", False)
    make_session(cast.bob, name="more")
    with CaptureQueriesContext(connection) as more:
        assert len(dana.get(address).json()["results"]) == 4
    assert len(more) == len(queries)
    assert alice.get(address).status_code == dana.get("/api/v1/resource-groups/none/queue/").status_code == 404
    pages = dana.get(address, page_size=3).json()
    assert [one["name"] for one in dana.get(pages["next"]).json()["results"]] == ["more"]


def test_superadmins_write_announcements_that_everybody_reads(dana: Caller, alice: Caller) -> None:
    made = dana.post(NEWS, {"text": "Maintenance", "tone": "warning"})
    assert made.status_code == 201, made.content
    address = f"{NEWS}{made.json()['id']}/"
    assert [one["text"] for one in alice.get(NEWS).json()["results"]] == ["Maintenance"]
    assert alice.post(NEWS, {"text": "Mine"}).status_code == 404
    assert alice.patch(address, {"text": "Mine"}).status_code == alice.get(address).status_code == 404
    early = dana.patch(address, {"ends_at": "2020-01-01T00:00:00Z"})
    assert (early.status_code, early.json()["code"]) == (400, "ends-too-early")
    later = (timezone.now() + timedelta(days=1)).isoformat()
    assert dana.patch(address, {"starts_at": later}).json()["text"] == "Maintenance"
    assert alice.get(NEWS).json()["results"] == []
    assert [one["text"] for one in dana.get(NEWS, all="true").json()["results"]] == ["Maintenance"]
    assert alice.get(NEWS, all="true").status_code == 404
    assert dana.delete(address).status_code == 204 and not Announcement.objects.exists()
    written = AuditEntry.objects.filter(target_type="announcement").order_by("pk").values_list("action", flat=True)
    assert list(written) == ["announcement.create", "announcement.change", "announcement.delete"]


def test_superadmins_add_an_image(dana: Caller, alice: Caller, cast: Cast) -> None:
    asked = {"name": "torch", "reference": "cr.example.org/torch:1", "aliases": ["pt"], "domains": ["default"]}
    made = dana.post(IMAGES, asked)
    assert made.status_code == 201, made.content
    assert (made.json()["name"], made.json()["aliases"]) == ("torch", ["pt"])
    assert [one.name for one in Image.objects.get().domains.all()] == ["default"]
    taken = dana.post(IMAGES, asked | {"reference": "cr.example.org/torch:2", "aliases": []})
    assert (taken.status_code, taken.json()["field"]) == (400, "name")
    assert alice.post(IMAGES, asked | {"name": "mine"}).status_code == 404


def test_second_factors_are_listed_and_reset_by_administrators(dana: Caller, alice: Caller, cast: Cast) -> None:
    Authenticator.objects.create(user=cast.alice, type=Authenticator.Type.TOTP, data={"secret": "sealed"})
    Login.objects.create(user=cast.alice, session_key="k" * 32, method="password")
    (shown,) = alice.get("/api/v1/me/second-factors/").json()["results"]
    assert (shown["type"], "sealed" in str(shown)) == ("totp", False)
    assert dana.get("/api/v1/me/second-factors/").json()["results"] == []
    address = f"/api/v1/users/{cast.alice.pk}/second-factors/"
    assert Caller(cast.bob).delete(address).status_code in (403, 404)
    assert alice.delete(address).status_code == 403
    assert Authenticator.objects.exists()
    assert dana.delete(address).status_code == 204
    assert not Authenticator.objects.exists() and not Login.objects.filter(user=cast.alice).exists()
    assert AuditEntry.objects.filter(action="user.reset-factors", target_id=str(cast.alice.pk)).exists()


def test_the_bell_is_read_seen_and_dismissed(alice: Caller, cast: Cast) -> None:
    session, now = make_session(cast.alice, name="train"), timezone.now()
    SessionNotice.objects.filter(owner=cast.alice).delete()
    SessionNotice.objects.create(session=session, owner=cast.alice, kind=NoticeKind.FAILED, created_at=now)
    folder = ("folder", session.pk)
    notify_of_access([cast.alice.pk], folder, "data", Message("You may view it."), now=now - timedelta(hours=1))
    rows = alice.get(BELL).json()["results"]
    told = [(one["about"], one["name"], one["kind"], one["is_seen"]) for one in rows]
    assert told == [("session", "train", "failed", False), ("folder", "data", "given", False)]
    assert rows[1]["message"] == "You may view it."
    assert Caller(User.objects.get(pk=cast.bob.pk)).get(BELL).json()["results"] == []
    assert alice.post(f"{BELL}seen/").status_code == 204
    assert all(one["is_seen"] for one in alice.get(BELL).json()["results"])
    assert alice.delete(BELL).status_code == 204 and alice.get(BELL).json()["results"] == []
    assert AccessNotice.objects.exists(), "dismissed, and kept for its time"
