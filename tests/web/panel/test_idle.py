"""The administration pages of idle checkers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.idle.checkers import checkers_of, places_of
from backendai.domain.cluster.models import IdleChecker
from tests.cast import Cast
from tests.factories import make_group
from tests.web.panel.test_catalogue import shown

pytestmark = pytest.mark.django_db
CHECKERS = "/manage/idle-checkers/"
QUIET = {
    "name": "quiet", "is_active": "on", "kind": "network-timeout", "limit": "1h", "grace": "0", "match": "all",
    "session_types": ["interactive"], "warning": "10m", "extension": "1h", "max_extensions": "3", "at_end": "stop",
    "is_site_wide": "on",
}  # fmt: skip


def test_a_checker_is_made_found_changed_and_deleted(dana: Client, cast: Cast) -> None:
    gpu = make_group("gpu")
    assert "No session is ended for being idle" in dana.get(CHECKERS).content.decode()
    places = {"in_groups": [gpu.pk], "except_projects": [cast.elsewhere.pk]}
    assert dana.post(f"{CHECKERS}new/", QUIET | places | {"thresholds": "cpu=10"}).status_code == 302
    checker = IdleChecker.objects.get()
    assert (checker.limit, checker.warning, checker.thresholds) == (
        timedelta(hours=1),
        timedelta(minutes=10),
        {"cpu": 10},
    )
    page = dana.get(CHECKERS).content.decode()
    assert "quiet" in page and "gpu" in page and "nowhere yet" not in page
    path = f"{CHECKERS}{checker.pk}/"
    form = dana.get(path).content.decode()
    assert 'value="cpu=10"' in form and 'value="10m"' in form
    assert dana.post(path, shown(dana, path) | {"limit": "2h", "thresholds": "", **places}).status_code == 302
    checker.refresh_from_db()
    assert (checker.limit, checker.thresholds, places_of(checker).groups) == (timedelta(hours=2), {}, [gpu])
    assert AuditEntry.objects.get(action="idle-checker.change").details["changes"].keys() == {"limit", "thresholds"}
    assert dana.post(f"{path}delete/").status_code == 302
    assert not IdleChecker.objects.exists()


def test_an_active_checker_without_a_place_is_not_saved(dana: Client) -> None:
    nowhere = {name: value for name, value in QUIET.items() if name != "is_site_wide"}
    answer = dana.post(f"{CHECKERS}new/", nowhere)
    assert answer.status_code == 422 and "Choose where the checker applies" in answer.content.decode()
    assert not IdleChecker.objects.exists()
    resting = {name: value for name, value in nowhere.items() if name != "is_active"}
    assert dana.post(f"{CHECKERS}new/", resting).status_code == 302
    assert dana.post(f"{CHECKERS}new/", QUIET | {"name": "wide"}).status_code == 302


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "soon"),
        ("grace", "-1m"),
        ("warning", "50m"),
        ("thresholds", "cpu"),
        ("thresholds", "cpu=200"),
        ("session_types", []),
    ],
)
def test_what_is_wrong_is_said_at_its_field(dana: Client, field: str, value: Any) -> None:
    answer = dana.post(f"{CHECKERS}new/", QUIET | {field: value})
    assert (answer.status_code, list(answer.context["form"].errors)) == (422, [field])
    if field == "warning":
        assert answer.context["form"].errors[field] == ["It is 50m; at most half of the limit, 30m."]
    assert not IdleChecker.objects.exists()


def test_a_name_that_is_taken_is_said_at_the_name(dana: Client) -> None:
    dana.post(f"{CHECKERS}new/", QUIET)
    answer = dana.post(f"{CHECKERS}new/", QUIET)
    assert (answer.status_code, list(answer.context["form"].errors)) == (422, ["name"])


def test_a_new_one_begins_with_what_is_usual_so_that_a_name_and_a_place_are_enough(dana: Client) -> None:
    path = f"{CHECKERS}new/"
    assert dana.post(path, shown(dana, path) | {"name": "quiet", "grace": "0", "is_site_wide": "on"}).status_code == 302
    checker = IdleChecker.objects.get()
    assert (checker.limit, checker.warning, checker.session_types) == (
        timedelta(hours=1),
        timedelta(minutes=15),
        ["interactive"],
    )
    assert (checker.extension, checker.max_extensions, checker.grace) == (timedelta(hours=1), 3, timedelta(0))


def test_two_administrators_do_not_overwrite_each_other(dana: Client) -> None:
    dana.post(f"{CHECKERS}new/", QUIET)
    path = f"{CHECKERS}{IdleChecker.objects.get().pk}/"
    old = shown(dana, path)
    dana.post(path, old | {"limit": "3h"})
    assert dana.post(path, old | {"limit": "4h"}).status_code == 422
    assert IdleChecker.objects.get().limit == timedelta(hours=3)


def test_the_form_of_a_group_chooses_checkers(dana: Client) -> None:
    dana.post(f"{CHECKERS}new/", QUIET)
    group, checker = make_group("gpu"), IdleChecker.objects.get()
    path, zeros = f"/manage/groups/{group.pk}/", {"retries_to_skip": "0", "give_up_after": "0"}
    answer = dana.post(path, shown(dana, path) | zeros | {"idle_checkers": [checker.pk]})
    assert answer.status_code == 302, answer.context["form"].errors
    assert checkers_of(group) == [checker]
    assert dana.post(path, shown(dana, path) | zeros).status_code == 302, "it is chosen in the form"
    assert checkers_of(group) == [checker]
    assert dana.post(path, shown(dana, path) | zeros | {"idle_checkers": []}).status_code == 302
    assert checkers_of(group) == []


def test_the_list_asks_a_fixed_number_of_queries(dana: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(8):
        dana.post(f"{CHECKERS}new/", QUIET | {"name": f"quiet-{number}", "in_groups": [make_group().pk]})
    with django_assert_max_num_queries(14):
        assert dana.get(CHECKERS).status_code == 200
