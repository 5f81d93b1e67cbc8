"""Resource policies over REST: made, changed and deleted by superadmins, with every wrong limit named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.accounts.models import Domain, KeyPair, PolicyDefault, Project, ResourcePolicy, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from backendai.portal.loops.loops import schedule_group
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
POLICIES = "/api/v1/policies/"
EVERYTHING = {
    "name": "students", "slots": {"cpu": 8, "mem": "64g", "cuda.device": 0}, "unnamed_slots": "limited",
    "max_sessions": 3, "max_pending_sessions": 5, "max_pending_slots": {"cpu": "0.5"}, "max_priority": 20,
    "max_kernels_per_session": 4, "max_session_lifetime": "1 12:00:00", "max_concurrent_logins": 2,
    "max_customized_images": 3,
    "max_system_sessions": 2, "max_endpoints": 5, "max_replicas_per_endpoint": 4,
    "max_folders": 20, "max_folder_bytes": 2**40,
    "required_labels": ["cost-center", "team"], "default_for": ["user", "key-pair"],
}  # fmt: skip


def test_it_takes_every_limit_and_shows_amounts_exactly(dana: Caller) -> None:
    answer = dana.post(POLICIES, EVERYTHING)
    assert answer.status_code == 201, answer.content
    body = answer.json()
    exact = {"slots": {"cpu": "8", "cuda.device": "0", "mem": str(64 * 2**30)}, "default_for": ["key-pair", "user"]}
    assert {name: body[name] for name in EVERYTHING} == EVERYTHING | exact
    assert body["used_by"] == {"key-pair": 0, "user": 0, "project": 0, "domain": 0, "invitation": 0}
    entry = AuditEntry.objects.get(action="resource-policy.create")
    assert (entry.actor, entry.details["name"], entry.details["changes"]["max_sessions"]) == (
        dana.user, "students", [None, 3],
    )  # fmt: skip


def test_what_is_left_out_is_not_limited_and_null_takes_a_limit_away(dana: Caller) -> None:
    made = dana.post(POLICIES, {"name": "free", "max_sessions": 1}).json()
    assert (made["slots"], made["max_priority"], made["max_session_lifetime"]) == ({}, None, None)
    path = f"{POLICIES}{made['id']}/"
    changed = dana._client.patch(path, {"max_sessions": None, "name": "freer"}, content_type="application/json")
    assert (changed.status_code, changed.json()["max_sessions"], changed.json()["name"]) == (200, None, "freer")
    entry = AuditEntry.objects.get(action="resource-policy.change")
    assert entry.details["changes"] == {"max_sessions": [1, None], "name": ["free", "freer"]}
    dana._client.patch(path, {"name": "freer"}, content_type="application/json")
    assert AuditEntry.objects.filter(action="resource-policy.change").count() == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"slots": {"cpu": -1}}, "slots"),
        ({"slots": {"cpu": "0.0001"}}, "slots"),
        ({"slots": {"mem": "8 parsecs"}}, "slots"),
        ({"slots": {"mem": 64}}, "slots"),
        ({"slots": {"cpu": "1e99"}}, "slots"),
        ({"slots": {"cpu": True}}, "slots.cpu"),
        ({"slots": "all"}, "slots"),
        ({"slots": {"CPU!": 1}}, "slots"),
        ({"max_pending_slots": {"mem": "-1g"}}, "max_pending_slots"),
        ({"max_sessions": -1}, "max_sessions"),
        ({"max_sessions": 2.5}, "max_sessions"),
        ({"max_sessions": 10**30}, "max_sessions"),
        ({"max_sessions": "many"}, "max_sessions"),
        ({"max_priority": 101}, "max_priority"),
        ({"max_kernels_per_session": 0}, "max_kernels_per_session"),
        ({"max_session_lifetime": "-1:00:00"}, "max_session_lifetime"),
        ({"max_session_lifetime": "forever"}, "max_session_lifetime"),
        ({"max_session_lifetime": 10**15}, "max_session_lifetime"),
        ({"max_concurrent_logins": 0}, "max_concurrent_logins"),
        ({"max_customized_images": -3}, "max_customized_images"),
        ({"max_folders": -1}, "max_folders"),
        ({"max_folder_bytes": 2**63}, "max_folder_bytes"),
        ({"unnamed_slots": "perhaps"}, "unnamed_slots"),
        ({"default_for": ["everybody"]}, "default_for.0"),
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"colour": "red"}, "colour"),
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_a_wrong_limit_is_refused_at_its_field_with_nothing_written(
    dana: Caller, wrong: dict[str, Any], field: str
) -> None:
    answer = dana.post(POLICIES, {"name": "p"} | wrong)
    assert (answer.status_code, answer.json().get("field", "")[: len(field)]) == (400, field), answer.content
    assert not ResourcePolicy.objects.exists()


def test_a_name_that_is_taken_is_refused(dana: Caller) -> None:
    ResourcePolicy.objects.create(name="p")
    answer = dana.post(POLICIES, {"name": "p"})
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (409, "name-taken", "name")


def test_new_holders_get_the_default_of_their_kind_and_old_ones_keep_theirs(dana: Caller, cast: Cast) -> None:
    kinds = list(PolicyDefault.Holder.values)
    first = dana.post(POLICIES, {"name": "first", "default_for": kinds}).json()
    domain = Domain.objects.create(name="new")
    project = Project.objects.create(name="new", domain=domain)
    own = ResourcePolicy.objects.create(name="own")
    user, other = User.objects.create_user("n@example.com"), User.objects.create_user("o@example.com", policy=own)
    key_pair = KeyPair.objects.create(user=user)
    assert {holder.policy_id for holder in (domain, project, user, key_pair)} == {first["id"]}
    assert (other.policy, User.objects.get(pk=cast.alice.pk).policy) == (own, None)
    second = dana.post(POLICIES, {"name": "second", "default_for": ["user"]}).json()
    assert User.objects.create_user("p@example.com").policy_id == second["id"]
    shown = dana.get(f"{POLICIES}{first['id']}/").json()
    assert shown["default_for"] == ["domain", "key-pair", "project"]
    assert shown["used_by"] == {"key-pair": 1, "user": 1, "project": 1, "domain": 1, "invitation": 0}
    user.policy = None
    user.save()
    assert User.objects.get(pk=user.pk).policy is None


def test_a_policy_in_use_or_given_to_new_ones_is_not_deleted(dana: Caller, cast: Cast) -> None:
    made = dana.post(POLICIES, {"name": "students", "default_for": ["user"]}).json()
    path = f"{POLICIES}{made['id']}/"
    refused = dana.delete(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "policy-is-default")
    dana._client.patch(path, {"default_for": []}, content_type="application/json")
    User.objects.filter(pk__in=[cast.alice.pk, cast.bob.pk]).update(policy=made["id"])
    refused = dana.delete(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "policy-in-use")
    assert refused.json()["data"]["used_by"] == {"user": 2}
    User.objects.update(policy=None)
    assert dana.delete(path).status_code == 204
    assert not ResourcePolicy.objects.exists()


def test_for_everybody_else_there_are_no_policies(dana: Caller, cast: Cast) -> None:
    path = f"{POLICIES}{dana.post(POLICIES, {'name': 'p'}).json()['id']}/"
    cast.bob.role = User.Role.ADMIN
    cast.bob.save()
    for caller in (Caller(cast.alice), Caller(cast.bob)):
        assert caller.get(POLICIES).json()["results"] == []
        assert caller.post(POLICIES, {"name": "mine"}).status_code == 404
        assert [caller.get(path).status_code, caller.delete(path).status_code] == [404, 404]
        assert caller._client.patch(path, {"name": "q"}, content_type="application/json").status_code == 404
    assert list(ResourcePolicy.objects.values_list("name", flat=True)) == ["p"]


def test_listing_policies_asks_the_database_as_often_for_many_as_for_one(
    dana: Caller, django_assert_num_queries: Callable[..., Any]
) -> None:
    dana.get(POLICIES)
    for number in range(4):
        ResourcePolicy.objects.create(name=f"p{number}")
        with django_assert_num_queries(3):  # who asks, the policies with their numbers, what they are the default of
            dana.get(POLICIES)


def test_a_lowered_limit_holds_from_the_next_pass_and_ends_nothing_that_runs(dana: Caller, cast: Cast) -> None:
    agent = make_agent(cpu=8)
    made = dana.post(POLICIES, {"name": "own", "max_sessions": 9}).json()
    cast.alice.policy_id = made["id"]
    cast.alice.save()
    running = [make_running_session(cast.alice, agent) for _ in range(2)]
    late = make_session(cast.alice)
    dana._client.patch(f"{POLICIES}{made['id']}/", {"max_sessions": 1}, content_type="application/json")
    schedule_group(late.resource_group_id, timezone.now())
    late.refresh_from_db()
    assert (late.status, late.status_reason) == (Status.PENDING, "too-many-sessions")
    assert late.status_message == "User alice@example.com has 2 of at most 1 sessions at once."
    ids = [each.pk for each in running]
    assert set(ComputeSession.objects.filter(pk__in=ids).values_list("status", flat=True)) == {Status.RUNNING}
    dana._client.patch(f"{POLICIES}{made['id']}/", {"max_sessions": 3}, content_type="application/json")
    schedule_group(late.resource_group_id, timezone.now())
    late.refresh_from_db()
    assert late.status == Status.SCHEDULED
