"""The pages of resource policies, of the audit log, and of statistics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import PolicyDefault, ResourcePolicy, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.services import audit
from backendai.domain.usage.models import UsageBucket
from tests.api.callers import Caller
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_group

pytestmark = pytest.mark.django_db
STATISTICS = "/api/v1/statistics/"
FORM = {
    "name": "students", "slots": "cpu=8, mem=64g, cuda.device=0", "unnamed_slots": "limited", "max_sessions": "3",
    "max_session_lifetime": "2h 30m", "max_folders": "5", "max_folder_bytes": "2t", "default_for": ["user"],
}  # fmt: skip


def text_of(answer: Any) -> str:
    return b"".join(answer).decode() if answer.streaming else answer.content.decode()


def test_a_policy_is_made_shown_changed_and_deleted_in_the_browser_alone(dana: Client, cast: Cast) -> None:
    assert dana.post(reverse("manage:policy-new"), FORM).status_code == 302
    policy = ResourcePolicy.objects.get()
    assert (policy.slots["cpu"], policy.max_session_lifetime) == ("8", timedelta(hours=2.5))
    listing = text_of(dana.get(reverse("manage:policies")))
    assert "cpu 8, cuda.device 0, mem 64 GiB, nothing else" in listing
    assert "2h 30m" in listing
    assert "nobody; new users" in listing
    assert '<option value="" selected>any</option>' in listing, "as the filters of all lists"
    assert "∞" in listing
    assert "None" not in listing
    path = reverse("manage:policy", args=[policy.pk])
    form = dana.get(path).context["form"]
    kept = {"version": form["version"].value()}
    assert dana.post(path, FORM | kept | {"max_sessions": "", "default_for": []}).status_code == 302
    entry = AuditEntry.objects.get(action="resource-policy.change")
    assert entry.details["changes"] == {"max_sessions": [3, None], "default_for": [["user"], []]}
    assert not PolicyDefault.objects.exists()
    misspelt = reverse("manage:policy-new"), {"name": "typo", "unnamed_slots": "unlimited", "slots": "cuda.devise=1"}
    refused = dana.post(*misspelt)
    assert refused.status_code == 422 and "Did you mean cuda.device?" in text_of(refused)
    assert not ResourcePolicy.objects.filter(name="typo").exists()
    stale = dana.post(path, FORM | kept)
    assert stale.status_code == 422
    assert "This was changed by someone else while you were editing" in text_of(stale)
    assert dana.post(reverse("manage:policy-delete", args=[policy.pk])).status_code == 302
    assert not ResourcePolicy.objects.exists()


def test_a_policy_in_use_names_who_has_it_and_is_not_deleted(dana: Client, cast: Cast) -> None:
    policy = ResourcePolicy.objects.create(name="students")
    User.objects.filter(pk__in=[cast.alice.pk, cast.bob.pk]).update(policy=policy)
    page = text_of(dana.get(reverse("manage:policy", args=[policy.pk])))
    assert "<bdi>alice@example.com</bdi>, <bdi>bob@example.com</bdi>" in page
    path = reverse("manage:policy-delete", args=[policy.pk])
    assert f'<a href="{reverse("manage:policy", args=[policy.pk])}">2 users</a>' in text_of(dana.get(path))
    refused = dana.post(path)
    assert refused.status_code == 422
    assert "is still assigned to 2 users; assign another one first" in text_of(refused)
    assert ResourcePolicy.objects.exists()
    used = dana.get(reverse("manage:policies"), {"in_use": "true"}).context["table"].data
    assert [row.name for row in used] == ["students"]


@some(
    ("typed", "field"),
    [
        ({"slots": "cpu=-1"}, "slots"),
        ({"slots": "mem=8 parsecs"}, "slots"),
        ({"slots": "mem=64"}, "slots"),
        ({"max_pending_slots": "cpu=0.0001"}, "max_pending_slots"),
        ({"max_sessions": "-1"}, "max_sessions"),
        ({"max_sessions": "2.5"}, "max_sessions"),
        ({"max_priority": "101"}, "max_priority"),
        ({"max_kernels_per_session": "0"}, "max_kernels_per_session"),
        ({"max_session_lifetime": "-2h"}, "max_session_lifetime"),
        ({"max_customized_images": "99999999999999999999"}, "max_customized_images"),
        ({"max_folder_bytes": "9999999p"}, "max_folder_bytes"),
        ({"max_folder_bytes": "much"}, "max_folder_bytes"),
        ({"max_folder_bytes": "20"}, "max_folder_bytes"),
        ({"default_for": ["everybody"]}, "default_for"),
        ({"name": ""}, "name"),
    ],
    4,
    ids=str,
)
def test_a_wrong_limit_is_refused_at_its_field(dana: Client, typed: dict[str, Any], field: str) -> None:
    answer = dana.post(reverse("manage:policy-new"), FORM | typed)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert not ResourcePolicy.objects.exists()


def test_the_audit_log_is_narrowed_by_action_person_and_target_and_sent_as_a_file(dana: Client, cast: Cast) -> None:
    audit(cast.alice.pk, "session.create", "session", ["s1"], name="=1+1", slots={"cpu": "1", "mem": "1" * 80})
    audit(cast.bob.pk, "session.terminate", "session", ["s1"])
    audit(cast.bob.pk, "token.create", "token", ["t1"])
    path = reverse("manage:audit")

    def found(**asked: str) -> list[str]:
        return sorted(row.action for row in dana.get(path, asked).context["table"].data)

    assert found(action="session.") == ["session.create", "session.terminate"]
    assert found(actor="BOB@example.com") == ["session.terminate", "token.create"]
    assert found(target_id="t1") == ["token.create"]
    assert found(target_id="nothing") == []
    lines = text_of(dana.get(path, {"action": "session.create", "export": "csv"})).splitlines()
    assert len(lines) == 2
    assert "alice@example.com" in lines[1]
    assert '""name"": ""=1+1""' in lines[1]


@pytest.fixture
def used(cast: Cast) -> Cast:
    """Alice held 2 cores and 1 GiB for an hour on two days, Charlie a GPU for two on one of them."""
    hour, group = 3600, make_group()
    for user, project, day, slot, amount in (
        (cast.alice, cast.project, 1, "cpu", 2),
        (cast.alice, cast.project, 2, "cpu", 2),
        (cast.alice, cast.project, 2, "mem", 2**30),
        (cast.charlie, cast.elsewhere, 2, "cuda.device", 2),
    ):
        UsageBucket.objects.create(
            resource_group=group, user=user, project=project, domain=project.domain, day=date(2030, 1, day),
            slot=slot, amount_seconds=amount * hour,
        )  # fmt: skip
    return cast


def test_statistics_add_up_what_one_may_see_by_whatever_is_asked(
    used: Cast, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    days = {"first": "2030-01-01", "last": "2030-01-03"}
    dana, alice, charlie = Caller(used.dana), Caller(used.alice), Caller(used.charlie)
    whole = dana.get(STATISTICS, **days).json()
    assert whole["slots"] == ["cpu", "mem", "cuda.device"]
    assert whole["lines"] == [
        {"name": "charlie@example.com", "hours": {"cuda.device": 2.0}, "used": {}, "measured": {}},
        {"name": "alice@example.com", "hours": {"cpu": 4.0, "mem": 1.0}, "used": {}, "measured": {}},
    ]
    assert whole["total"]["hours"] == {"cpu": 4.0, "mem": 1.0, "cuda.device": 2.0}
    by_day = dana.get(STATISTICS, by="day", **days).json()["lines"]
    assert [(line["name"], line["hours"].get("cpu", 0)) for line in by_day] == [
        ("2030-01-01", 2.0), ("2030-01-02", 2.0), ("2030-01-03", 0),
    ]  # fmt: skip
    assert [line["name"] for line in dana.get(STATISTICS, by="domain", **days).json()["lines"]] == [
        "elsewhere", "default",
    ]  # fmt: skip
    alice.get(STATISTICS, **days)
    with django_assert_max_num_queries(3):
        assert [line["name"] for line in alice.get(STATISTICS, **days).json()["lines"]] == ["alice@example.com"]
    User.objects.filter(pk=used.charlie.pk).update(role=User.Role.ADMIN)
    assert [line["name"] for line in charlie.get(STATISTICS, **days).json()["lines"]] == ["charlie@example.com"]
    file = text_of(dana.get(STATISTICS, as_file="csv", **days))
    assert file.splitlines()[0].endswith("user,cpu,mem,cuda.device")
    assert file.splitlines()[2] == "alice@example.com,4.000,1.000,0.000"


def test_what_was_used_stands_beside_what_was_held(used: Cast, dana: Client) -> None:
    days = {"first": "2030-01-01", "last": "2030-01-03"}
    hour = 3600.0
    UsageBucket.objects.filter(slot="cuda.device").update(used_seconds=0.25 * hour, measured_seconds=hour)
    told = Caller(used.dana).get(STATISTICS, **days).json()["lines"][0]
    assert (told["used"], told["measured"]) == ({"cuda.device": 0.25}, {"cuda.device": 1.0})
    file = text_of(Caller(used.dana).get(STATISTICS, as_file="csv", **days)).splitlines()
    assert file[0].endswith("user,cpu,mem,cuda.device,cuda.device used,cuda.device measured")
    assert file[1] == "charlie@example.com,0.000,0.000,2.000,0.250,1.000"
    page = dana.get(reverse("manage:statistics"), days)
    assert "25 % used" in text_of(page)
    file = text_of(dana.get(reverse("manage:statistics"), days | {"export": "csv"})).splitlines()
    assert file[1] == "charlie@example.com,0.00,0.00,2.00,0.25,1.00"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"first": "2030-01-02", "last": "2030-01-01"}, "last"),
        ({"first": "1990-01-01", "last": "2030-01-01"}, "first"),
        ({"first": "tomorrow"}, "first"),
        ({"by": "colour"}, "by"),
    ],
    ids=str,
)
def test_days_that_make_no_sense_are_refused_at_their_field(
    used: Cast, dana: Client, asked: dict[str, str], field: str
) -> None:
    assert Caller(used.dana).get(STATISTICS, **asked).json()["field"] == field
    page = dana.get(reverse("manage:statistics"), asked)
    assert page.status_code == 422
    assert list(page.context["form"].errors) == [field]


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_days_at_the_ends_of_the_calendar_are_refused_at_their_field(used: Cast, dana: Client, day: str) -> None:
    told = Caller(used.dana).get(STATISTICS, last=day)
    assert (told.status_code, told.json()["field"]) == (400, "last")
    page = dana.get(reverse("manage:statistics"), {"last": day})
    assert (page.status_code, list(page.context["form"].errors)) == (422, ["last"])


def test_without_a_first_day_thirty_days_are_counted(used: Cast) -> None:
    assert Caller(used.dana).get(STATISTICS, last="2030-01-30").json()["first"] == "2030-01-01"


def test_the_page_shows_table_and_chart_to_administrators_and_a_part_to_domain_admins(used: Cast, dana: Client) -> None:
    path, days = reverse("manage:statistics"), {"first": "2030-01-01", "last": "2030-01-03"}
    page = dana.get(path, days)
    assert [column.hours for column in page.context["drawn"].columns] == [0, 2.0, 0]
    assert '<div class="stat-top number">2.0</div>' in text_of(page), "the height of the highest column"
    assert page.context["slot"] == "cuda.device"
    labels = text_of(page).count('data-label="GPU hours"')
    assert labels == len(page.context["rows"]) + 1, "a phone shows a name beside each number, also of the total"
    assert "<title>2030-01-02: 2.0</title>" in text_of(page)
    assert text_of(dana.get(path, days | {"by": "project", "export": "csv"})).splitlines()[-1].startswith("vision,4.00")
    User.objects.filter(pk=used.bob.pk).update(role=User.Role.ADMIN)
    bob = Client()
    bob.force_login(used.bob)
    assert [name for name, _ in bob.get(path, days).context["rows"]] == ["alice@example.com"]
    usual = dana.get(path)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert f'value="{today}"' in text_of(usual), "the form shows the days of the table"
    assert "No hours are recorded in these days yet." in text_of(usual)
