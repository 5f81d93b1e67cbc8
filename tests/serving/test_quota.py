"""What policies allow of endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.serving.models import DesiredState, Endpoint, Revision
from backendai.domain.serving.services.endpoints import change_endpoint, set_wish, update_endpoint
from tests.cast import Cast
from tests.serving.world import a_revision, make_endpoint

pytestmark = pytest.mark.django_db


def limit(cast: Cast, **limits: Any) -> None:
    """Give Alice's account this policy."""
    cast.alice.policy = ResourcePolicy.objects.create(name="few", **limits)
    cast.alice.save(update_fields=["policy"])


BEYOND: list[tuple[dict[str, Any], str, int]] = [
    ({"slots": {"cpu": 3}}, "beyond-policy", 3),
    ({"slots": {"mem": "1g"}}, "beyond-policy", 2),
    ({"max_sessions": 2}, "beyond-policy", 2),
    ({"max_replicas_per_endpoint": 2}, "too-many-replicas", 2),
]


@pytest.mark.parametrize(("limits", "code", "most"), BEYOND)
def test_a_maximum_that_policies_never_hold_is_refused_with_the_number_that_they_do(
    cast: Cast, limits: dict[str, Any], code: str, most: int
) -> None:
    limit(cast, **limits)
    with pytest.raises(UserError) as caught:
        make_endpoint(cast.alice, maximum=4)
    assert (caught.value.code, caught.value.field, caught.value.details["most"]) == (code, "maximum", most)
    assert str(most) in caught.value.message
    endpoint = make_endpoint(cast.alice, maximum=most)
    endpoint = Endpoint.objects.get(pk=endpoint.pk)
    with pytest.raises(UserError) as caught:
        change_endpoint(endpoint, cast.dana, maximum=4)
    assert caught.value.code == code
    change_endpoint(endpoint, cast.dana, target=8.0)


def test_a_policy_that_allows_no_replica_of_this_size_says_so(cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice, maximum=2, revision=a_revision(resources={"cpu": 2, "mem": "512m"}))
    limit(cast, slots={"cpu": 1})
    with pytest.raises(UserError) as caught:
        change_endpoint(Endpoint.objects.get(pk=endpoint.pk), cast.dana, maximum=3)
    assert (caught.value.code, caught.value.details["most"]) == ("beyond-policy", 0)
    assert caught.value.message.startswith("Policies allow no replica of this size.")


def test_an_update_whose_replicas_are_too_large_for_the_maximum_is_refused(cast: Cast) -> None:
    limit(cast, slots={"cpu": 4})
    endpoint = make_endpoint(cast.alice, maximum=4)
    with pytest.raises(UserError) as caught:
        update_endpoint(endpoint, cast.alice, a_revision(resources={"cpu": 2, "mem": "512m"}))
    assert (caught.value.field, caught.value.details["most"]) == ("maximum", 2)
    assert Revision.objects.count() == 1


def test_a_policy_counts_endpoints_that_are_not_deleted(cast: Cast) -> None:
    limit(cast, max_endpoints=1)
    first = make_endpoint(cast.alice, "first")
    set_wish(first, cast.alice, DesiredState.STOPPED)
    with pytest.raises(Conflict) as caught:
        make_endpoint(cast.alice, "second")
    assert (caught.value.code, "is 1, the limit 1" in caught.value.message) == ("too-many-endpoints", True)
    make_endpoint(cast.bob, "another")
    set_wish(first, cast.alice, DesiredState.DELETED)
    make_endpoint(cast.alice, "second")
    assert Endpoint.objects.live().count() == 2
