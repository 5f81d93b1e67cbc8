"""Sharing folders: invitations, overrides, and what each person may do."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotAllowed, NotFound, UserError
from backendai.domain.accounts.models import Membership, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.storage.models import Folder, FolderGrant, StorageHost
from backendai.domain.storage.permissions import require_rights, rights_of
from backendai.domain.storage.services import (
    accept_invitation,
    create_folder,
    decline_invitation,
    leave_folder,
    revoke_grant,
    set_member_rights,
    set_override,
    share_folder,
    trash_folder,
)
from tests.cast import Cast

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
NOW = timezone.now()


@pytest.fixture
def folder(cast: Cast, host: StorageHost) -> Folder:
    return create_folder(cast.alice, name="data", now=NOW)


@pytest.fixture
def shared(cast: Cast, host: StorageHost) -> Folder:
    """A folder of the project of Alice, its administrator, and Bob."""
    Membership.objects.filter(user=cast.alice).update(role="admin")
    return create_folder(cast.alice, name="shared", project=cast.project, now=NOW)


def test_an_invitation_counts_once_it_is_accepted_and_until_it_is_left(folder: Folder, cast: Cast) -> None:
    grant = share_folder(folder, cast.alice, " Bob@example.com", "view", now=NOW)
    assert rights_of(cast.bob, folder) == "none"
    accept_invitation(grant, cast.bob, now=NOW)
    assert rights_of(cast.bob, folder) == "view"
    assert Folder.objects.offered_to(cast.bob).get().pk == folder.pk
    share_folder(folder, cast.alice, "bob@example.com", "edit", now=NOW)
    assert rights_of(cast.bob, folder) == "edit"
    leave_folder(folder, cast.bob, now=NOW)
    assert rights_of(cast.bob, folder) == "none"
    with pytest.raises(NotFound):
        accept_invitation(grant, cast.bob, now=NOW)
    actions = list(AuditEntry.objects.filter(target_type="folder").order_by("pk").values_list("action", flat=True))
    assert actions == ["folder.create", "folder.share", "folder.accept", "folder.share", "folder.leave"]


def test_an_invitation_can_be_declined_and_revoked(folder: Folder, cast: Cast) -> None:
    decline_invitation(share_folder(folder, cast.alice, "bob@example.com", "view", now=NOW), cast.bob, now=NOW)
    with pytest.raises(NotFound):
        revoke_grant(folder, cast.alice, cast.bob, now=NOW)
    grant = share_folder(folder, cast.alice, "bob@example.com", "view", now=NOW)
    with pytest.raises(NotFound):
        accept_invitation(grant, cast.charlie, now=NOW)
    accept_invitation(grant, cast.bob, now=NOW)
    revoke_grant(folder, cast.alice, cast.bob, now=NOW)
    assert (rights_of(cast.bob, folder), FolderGrant.objects.count()) == ("none", 0)


@pytest.mark.parametrize("email", ["charlie@example.com", "nobody@example.com"])
def test_people_of_other_domains_look_like_nobody(folder: Folder, cast: Cast, email: str) -> None:
    with pytest.raises(NotFound) as refused:
        share_folder(folder, cast.alice, email, "view", now=NOW)
    assert refused.value.message == "No account with this address in your domain or your projects."


def test_a_superadmin_shares_with_anybody(folder: Folder, cast: Cast) -> None:
    assert share_folder(folder, cast.dana, "charlie@example.com", "view", now=NOW).user == cast.charlie


def test_it_is_shared_to_view_or_to_edit_and_not_with_its_owner(folder: Folder, cast: Cast) -> None:
    for rights in ("none", "manage", ""):
        with pytest.raises(UserError) as refused:
            share_folder(folder, cast.alice, "bob@example.com", rights, now=NOW)
        assert refused.value.field == "rights"
    with pytest.raises(Conflict):
        share_folder(folder, cast.dana, "alice@example.com", "view", now=NOW)


def test_nobody_invites_themselves_or_limits_a_person_who_manages_the_folder(
    folder: Folder, shared: Folder, cast: Cast
) -> None:
    for actor in (cast.alice, cast.dana):
        with pytest.raises(Conflict) as refused:
            share_folder(folder, actor, f" {actor.email.title()}", "view", now=NOW)
        assert (refused.value.field, refused.value.code) == ("email", "yourself")
    for member, who in ((cast.alice, "You manage"), (cast.dana, "dana@example.com manages")):
        with pytest.raises(Conflict) as refused:
            set_override(shared, cast.alice, member, "view", now=NOW)
        assert refused.value.message == f"{who} this folder as an administrator: name another member."
    assert not FolderGrant.objects.exists()


def test_whoever_may_only_edit_shares_nothing(folder: Folder, cast: Cast) -> None:
    accept_invitation(share_folder(folder, cast.alice, "bob@example.com", "edit", now=NOW), cast.bob, now=NOW)
    with pytest.raises(NotAllowed):
        share_folder(folder, cast.bob, "alice@example.com", "view", now=NOW)
    with pytest.raises(NotAllowed):
        revoke_grant(folder, cast.bob, cast.bob, now=NOW)


def test_members_have_the_default_of_their_folder_unless_it_is_overridden(shared: Folder, cast: Cast) -> None:
    assert [rights_of(who, shared) for who in (cast.alice, cast.bob, cast.charlie, cast.dana)] == [
        "manage", "edit", "none", "manage",
    ]  # fmt: skip
    set_member_rights(shared, cast.alice, "view", now=NOW)
    assert rights_of(cast.bob, shared) == "view"
    set_override(shared, cast.alice, cast.bob, "none", now=NOW)
    assert rights_of(cast.bob, shared) == "none"
    set_override(shared, cast.alice, cast.bob, "edit", now=NOW)
    assert rights_of(cast.bob, shared) == "edit"
    with pytest.raises(Conflict):
        leave_folder(shared, cast.bob, now=NOW)
    Membership.objects.filter(user=cast.bob).delete()
    assert rights_of(cast.bob, shared) == "none", "an override holds for members only"


def test_only_members_are_given_other_rights(shared: Folder, folder: Folder, cast: Cast) -> None:
    with pytest.raises(NotFound):
        set_override(shared, cast.alice, cast.charlie, "view", now=NOW)
    with pytest.raises(UserError):
        set_override(folder, cast.alice, cast.bob, "view", now=NOW)
    with pytest.raises(UserError):
        set_member_rights(folder, cast.alice, "view", now=NOW)


def test_a_domain_administrator_manages_the_folders_of_the_domain(folder: Folder, cast: Cast) -> None:
    for who, rights in ((cast.bob, "manage"), (cast.charlie, "none")):
        User.objects.filter(pk=who.pk).update(role="admin")
        who.refresh_from_db()
        assert rights_of(who, folder) == rights


def test_what_is_in_the_trash_is_there_for_its_managers_only(shared: Folder, cast: Cast) -> None:
    trash_folder(shared, cast.alice, now=NOW)
    assert [rights_of(who, shared) for who in (cast.alice, cast.bob)] == ["manage", "none"]


def test_a_refusal_says_what_one_has_and_what_it_needs(shared: Folder, cast: Cast) -> None:
    with pytest.raises(NotAllowed) as refused:
        require_rights(cast.bob, shared, "manage")
    details: dict[str, Any] = dict(refused.value.details)
    assert details == {"rights": "edit", "needed": "manage", "found": "shared", "words": "manage"}
    assert refused.value.message == "You may not manage the folder shared: your rights are edit."
