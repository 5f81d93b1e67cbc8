"""Asking people in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Invitation, Membership, ResourcePolicy, User
from backendai.domain.accounts.services import (
    Invitee,
    accept_as,
    accept_as_new,
    digest_of,
    invite,
    open_invitation,
    revoke_invitation,
    set_member_role,
    set_user_active,
)
from backendai.domain.accounts.services.policies import delete_policy
from backendai.domain.activity.models import AuditEntry
from tests.accounts.world import World, make_world
from tests.cast import PASSWORD

pytestmark = pytest.mark.postgres

NOW = timezone.now()
NEW = "new@example.com"


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as refused:
        action()
    return refused.value.code


def asked(world: World, email: str = NEW, **over: Any) -> tuple[Invitation, str]:
    row, text = invite(world.bob, world.vision, Invitee(email, **over), now=NOW)
    return row, digest_of(text)


def test_a_newcomer_becomes_a_member_with_what_the_invitation_says(world: World) -> None:
    policy = ResourcePolicy.objects.create(name="students", max_sessions=2)
    row, text = invite(world.erin, world.vision, Invitee("New@Example.com ", role="admin", policy=policy), now=NOW)
    assert text not in str(Invitation.objects.values()), "only a hash is kept"
    user = accept_as_new(digest_of(text), full_name="Nora", password=PASSWORD, now=NOW)
    assert (user.email, user.full_name, user.role, user.policy, user.domain) == (
        NEW, "Nora", "user", policy, world.domain,
    )  # fmt: skip
    assert user.check_password(PASSWORD)
    assert user.key_pairs.exists()
    assert user.memberships.get().role == "admin"
    row.refresh_from_db()
    assert (row.state(NOW), row.policy) == (Invitation.State.ACCEPTED, None)
    trail = AuditEntry.objects.filter(actor=user).values_list("action", flat=True)
    assert set(trail) == {"user.create", "invitation.accept"}
    assert text not in str(list(AuditEntry.objects.values()))


def test_a_link_is_good_once_and_only_while_the_invitation_stands(world: World) -> None:
    row, digest = asked(world)
    accept_as_new(digest, full_name="", password=PASSWORD, now=NOW)
    assert refusal(lambda: open_invitation(digest, now=NOW)) == "invitation-accepted"
    assert refusal(lambda: revoke_invitation(world.bob, row, now=NOW)) == "not-open"
    _, late = asked(world, "late@example.com")
    assert refusal(lambda: open_invitation(late, now=NOW + timedelta(days=8))) == "invitation-expired"
    taken_back, gone = asked(world, "gone@example.com")
    revoke_invitation(world.erin, taken_back, now=NOW)
    assert refusal(lambda: accept_as_new(gone, full_name="", password=PASSWORD, now=NOW)) == "invitation-revoked"
    assert refusal(lambda: open_invitation("0" * 64, now=NOW)) == "no-invitation"
    assert not User.objects.filter(email__in=["late@example.com", "gone@example.com"]).exists()


def test_a_second_invitation_replaces_the_first(world: World) -> None:
    _, first = asked(world)
    _, second = asked(world)
    assert refusal(lambda: open_invitation(first, now=NOW)) == "invitation-revoked"
    assert open_invitation(second, now=NOW).email == NEW
    assert Invitation.objects.pending().count() == 1


@pytest.mark.parametrize("what", ["demoted", "deactivated", "project"])
def test_an_invitation_ends_with_the_power_of_whoever_sent_it(world: World, what: str) -> None:
    _, digest = asked(world)
    if what == "demoted":
        set_member_role(world.erin, world.vision, world.bob, "member")
    elif what == "deactivated":
        set_user_active(world.erin, world.bob, False, now=NOW)
    else:
        type(world.vision).objects.filter(pk=world.vision.pk).update(is_active=False)
    expected = "project-inactive" if what == "project" else "invitation-revoked"
    assert refusal(lambda: open_invitation(digest, now=NOW)) == expected


def test_somebody_with_an_account_joins_by_signing_in_as_whom_it_is_for(world: World) -> None:
    _, digest = asked(world, "gina@example.com")
    assert refusal(lambda: accept_as(world.cast.alice, digest, now=NOW)) == "not-invited"
    assert refusal(lambda: accept_as_new(digest, full_name="", password=PASSWORD, now=NOW)) == "email-taken"
    assert accept_as(world.gina, digest, now=NOW) == world.vision
    assert Membership.objects.get(user=world.gina).project == world.vision


@pytest.mark.parametrize(
    ("email", "over", "code"),
    [
        ("no address", {}, "invalid-email"),
        ("alice@example.com", {}, "already-member"),
        ("charlie@example.com", {}, "cannot-invite"),
        (NEW, {"role": "owner"}, "invalid-role"),
        (NEW, {"full_name": "two\nlines"}, "invalid-name"),
    ],
)
def test_a_wrong_invitation_is_refused(world: World, email: str, over: dict[str, Any], code: str) -> None:
    assert refusal(lambda: asked(world, email, **over)) == code
    assert not Invitation.objects.exists()


def test_a_weak_password_leaves_the_invitation_open(world: World) -> None:
    _, digest = asked(world)
    assert refusal(lambda: accept_as_new(digest, full_name="N", password="short", now=NOW)) == "weak-password"
    assert open_invitation(digest, now=NOW)


def test_a_policy_that_an_open_invitation_gives_is_in_use(world: World) -> None:
    policy = ResourcePolicy.objects.create(name="students")
    row, _ = invite(world.erin, world.vision, Invitee(NEW, policy=policy), now=NOW)
    assert refusal(lambda: delete_policy(None, policy)) == "policy-in-use"
    revoke_invitation(world.erin, row, now=NOW)
    delete_policy(None, policy)


def test_who_chooses_the_members_needs_no_invitation(world: World) -> None:
    assert refusal(lambda: invite(world.erin, world.vision, Invitee("Erin@example.com"), now=NOW)) == "yourself"
    assert not Invitation.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_two_who_accept_at_once_one_gets_the_account() -> None:
    world = make_world()
    _, digest = asked(world)
    start, outcomes = Barrier(4), []

    def accept() -> None:
        start.wait()
        try:
            outcomes.append(accept_as_new(digest, full_name="N", password=PASSWORD, now=NOW).email)
        except UserError as error:
            outcomes.append(error.code)
        finally:
            connections.close_all()

    threads = [Thread(target=accept) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["invitation-accepted"] * 3 + [NEW]
    assert User.objects.filter(email=NEW).count() == Membership.objects.filter(user__email=NEW).count() == 1
