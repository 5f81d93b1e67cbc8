"""Resource policies: what they may say, for whom they hold, and that one in use stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db.models import ProtectedError

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.accounts.policies.applicable import limited_holders, strictest
from backendai.domain.accounts.services.policies import delete_policy
from backendai.domain.activity.models import AuditEntry
from tests.cast import Cast

pytestmark = pytest.mark.django_db


def keys_of(cast: Cast) -> list[str]:
    """The keys under which Alice's sessions count."""
    access_key = cast.alice.key_pairs.get().access_key
    return [
        f"domain:{cast.project.domain_id}",
        f"project:{cast.project.pk}",
        f"user:{cast.alice.pk}",
        f"key-pair:{access_key}",
    ]


def test_amounts_are_kept_as_exact_decimal_strings_and_a_zero_stays() -> None:
    amounts = {"mem": "1.5g", "cpu": 0.5, "cuda.device": 0}
    policy = ResourcePolicy.objects.create(name="p", slots=amounts, max_pending_slots={"cpu": "0"})
    policy.refresh_from_db()
    assert policy.slots == {"cpu": "0.5", "cuda.device": "0", "mem": str(3 * 2**29)}
    assert policy.max_pending_slots == {"cpu": "0"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slots", {"cpu": -1}),
        ("slots", {"CPU!": 1}),
        ("slots", {"cpu": "many"}),
        ("slots", {"cpu": "0.0001"}),
        ("slots", ["cpu"]),
        ("max_pending_slots", {"mem": "-1g"}),
        ("max_priority", 101),
        ("max_priority", -1),
        ("max_sessions", -1),
        ("max_pending_sessions", -5),
        ("max_kernels_per_session", 0),
        ("max_session_lifetime", timedelta(0)),
        ("max_session_lifetime", timedelta(days=100_000)),
        ("unnamed_slots", "perhaps"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_at_its_field_and_not_written(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        ResourcePolicy.objects.create(name="p", **{field: value})
    assert list(caught.value.message_dict) == [field]
    assert not ResourcePolicy.objects.exists()


def test_a_policy_that_was_good_cannot_be_saved_when_it_is_not_any_more() -> None:
    policy = ResourcePolicy.objects.create(name="p", max_priority=50)
    policy.max_priority = 200
    with pytest.raises(ValidationError):
        policy.save()
    policy.refresh_from_db()
    assert policy.max_priority == 50


def test_every_kind_of_holder_has_its_own_policy_and_all_are_found(
    cast: Cast, django_assert_num_queries: Callable[..., Any]
) -> None:
    holders = [cast.alice.key_pairs.get(), cast.alice, cast.project, cast.project.domain]
    for number, holder in enumerate(holders):
        holder.policy = ResourcePolicy.objects.create(name=f"p{number}", max_priority=90 - number)
        holder.save()
    keys = keys_of(cast)
    with django_assert_num_queries(2):
        found = limited_holders(keys)
    assert [one.scope for one in found] == ["key-pair", "user", "project", "domain"]
    assert [one.key for one in found] == list(reversed(keys))
    assert [one.name for one in found] == [
        holders[0].access_key,
        "alice@example.com",
        cast.project.name,
        cast.project.domain.name,
    ]
    assert [one.policy.name for one in found] == ["p0", "p1", "p2", "p3"]
    number, holder = strictest(found, "max_priority") or (None, None)
    assert (number, holder and holder.label) == (87, f"domain {cast.project.domain.name}")
    assert strictest(found, "max_sessions") is None


def test_who_has_no_policy_costs_one_query(cast: Cast, django_assert_num_queries: Callable[..., Any]) -> None:
    cast.bob.policy = ResourcePolicy.objects.create(name="bobs")
    cast.bob.save()
    keys = keys_of(cast)
    with django_assert_num_queries(1):
        assert limited_holders(keys) == []
    assert limited_holders([]) == []


def test_a_policy_in_use_is_not_deleted_and_the_refusal_counts_who_has_it(cast: Cast) -> None:
    policy = ResourcePolicy.objects.create(name="students")
    for holder in (cast.alice, cast.bob, cast.project):
        holder.policy = policy
        holder.save()
    with pytest.raises(Conflict) as caught:
        delete_policy(cast.dana.pk, policy)
    assert caught.value.code == "policy-in-use"
    assert (
        caught.value.message == "Policy 'students' is still assigned to 2 users, 1 project; assign another one first."
    )
    assert caught.value.details["used_by"] == {"user": 2, "project": 1}
    with pytest.raises(ProtectedError):
        policy.delete()
    assert ResourcePolicy.objects.filter(pk=policy.pk).exists()


def test_a_policy_that_nobody_has_goes_and_the_trail_says_who_did_it(cast: Cast) -> None:
    policy = ResourcePolicy.objects.create(name="students")
    key = policy.pk
    delete_policy(cast.dana.pk, policy)
    assert not ResourcePolicy.objects.exists()
    entry = AuditEntry.objects.get(action="resource-policy.delete")
    assert (entry.actor_id, entry.target_id, entry.details["name"]) == (cast.dana.pk, str(key), "students")
