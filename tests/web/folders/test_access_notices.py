"""What somebody is given access to is told them: on a card, under the bell, beside Folders, and by mail."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import Membership, User
from backendai.domain.accounts.services.change_user import change_user
from backendai.domain.accounts.services.importing import import_people
from backendai.domain.accounts.services.members import add_member, remove_member, set_member_role
from backendai.domain.activity.access_notices import ACCESS, KEPT_FOR, delete_old_access_notices
from backendai.domain.activity.models import AccessNotice
from backendai.domain.activity.notices import choose
from backendai.domain.catalog.shares import share_image, take_back_image
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.services import set_override, share_folder, transfer_folders, trash_folder
from backendai.domain.templates.services.publishing import TemplateDraft, create_template, delete_template
from backendai.portal.loops.mail_texts import access_mail
from tests.cast import Cast
from tests.factories import make_image
from tests.pages import markup

pytestmark = pytest.mark.django_db
HEADERS = {"hx-request": "true"}
CARDS, LIST, BELL = "web:cards", "web:notifications", "web:bell"


def read(client: Client, name: str) -> str:
    return markup(client.get(reverse(name), headers=HEADERS))


def told(user: User) -> list[str]:
    return [str(one.message) for one in AccessNotice.objects.filter(owner=user)]


def test_a_shared_folder_is_told_with_accept_and_counted_beside_folders(
    cast: Cast, alice: Client, bob: Client, data: Folder
) -> None:
    alice.post(reverse("web:folder_sharing", args=[data.pk]), {"email": "bob@example.com", "rights": "view"})
    grant = FolderGrant.objects.get(folder=data, user=cast.bob)
    answer = reverse("web:folder_invitation", args=[grant.pk])
    for part in (CARDS, LIST):
        page = read(bob, part)
        assert f'action="{answer}"' in page and 'value="accept"' in page, part
        assert "alice@example.com shares the folder data with you: you can view its files." in page
    on_the_list = {"hx-current-url": f"http://testserver{reverse('web:folders')}?kind=own"}
    assert bob.get(reverse(CARDS), headers=HEADERS | on_the_list).content.strip() == b"", "the list asks itself"
    card = AccessNotice.objects.get(owner=cast.bob)
    alice.post(reverse("web:access_card_close", args=[card.pk]), headers=HEADERS)
    assert f'action="{answer}"' in read(bob, CARDS), "nobody closes the cards of others"
    bell = read(bob, BELL)
    assert "1 new notification" in bell and ": 1 invitation<" in bell
    bob.post(reverse("web:notifications_clear"), headers=HEADERS)
    assert f'action="{answer}"' in read(bob, LIST), "what waits for an answer is not put away"
    bob.post(answer, {"answer": "accept"})
    assert read(bob, CARDS).strip() == ""
    assert "invitation<" not in read(bob, BELL) and "new notification" not in read(bob, BELL)
    assert f'href="{reverse("web:folder", args=[data.pk])}"' in read(bob, LIST)
    alice.post(reverse("web:folder_revoke", args=[data.pk, cast.bob.pk]))
    assert told(cast.bob) == []
    assert told(cast.alice) == []


def test_an_answer_and_the_end_of_a_folder_leave_no_question(cast: Cast, bob: Client, data: Folder) -> None:
    now = timezone.now()
    grant = share_folder(data, cast.alice, "bob@example.com", "edit", now=now)
    bob.post(reverse("web:folder_invitation", args=[grant.pk]), {"answer": "decline"})
    assert told(cast.bob) == []
    share_folder(data, cast.alice, "bob@example.com", "edit", now=now)
    trash_folder(data, cast.alice, now=now)
    assert told(cast.bob) == []


def test_whatever_else_somebody_gives_is_told_and_taken_back(cast: Cast, data: Folder) -> None:
    now, image = timezone.now(), make_image()
    Membership.objects.filter(user=cast.alice).update(role="admin")
    share_image(cast.alice, image, cast.project.pk, now=now)
    template = create_template(
        cast.alice, TemplateDraft("train", scope="project", project="vision"), "image: python", now=now
    )
    set_member_role(cast.dana, cast.project, cast.bob, "admin")
    change_user(cast.dana, cast.bob, {"role": "admin"}, now=now)
    transfer_folders(cast.dana, cast.alice, cast.bob, now=now)
    assert sorted(told(cast.bob)) == [
        "alice@example.com published the template train for the project vision.",
        f"alice@example.com shares the image {image.display_name} with the project vision: start sessions from it.",
        "dana@example.com gave your account another role: domain admin.",
        "dana@example.com made you project admin of the project vision.",
        "dana@example.com made you the owner of the folders of alice@example.com: 1.",
    ]
    assert told(cast.alice) == told(cast.charlie) == [], "neither who gives nor anybody else"
    take_back_image(cast.alice, image, cast.project.pk)
    delete_template(cast.alice, template)
    remove_member(cast.dana, cast.project, cast.bob)
    assert len(told(cast.bob)) == 2
    add_member(cast.dana, cast.project, "bob@example.com")
    assert "dana@example.com made you member of the project vision." in told(cast.bob)


def test_an_import_tells_those_who_have_accounts(cast: Cast) -> None:
    Membership.objects.filter(user=cast.bob).delete()
    import_people(cast.dana, b"email,project,role\nbob@example.com,vision,admin\n", now=timezone.now())
    assert told(cast.bob) == ["dana@example.com made you project admin of the project vision."]


def test_a_member_of_a_project_is_told_of_rights_and_not_of_their_end(cast: Cast, project_folder: Folder) -> None:
    set_override(project_folder, cast.alice, cast.bob, "edit", now=timezone.now())
    assert told(cast.bob) == ["alice@example.com shares the folder ours with you: you can edit its files."]
    assert AccessNotice.objects.get().invitation is None, "nothing to accept"
    set_override(project_folder, cast.alice, cast.bob, "none", now=timezone.now())
    assert told(cast.bob) == []


def test_it_comes_by_mail_to_whoever_asked_and_goes_after_a_month(
    cast: Cast, data: Folder, settings: Any, browse: Callable[[User], Client]
) -> None:
    settings.EMAIL_URL, settings.PORTAL_URL = "smtp://mail.example.org", "https://lab.example.org"
    now = timezone.now()
    choose(cast.bob, {"given": {"email": True, "card": False, "bell": False}})
    share_folder(data, cast.alice, "bob@example.com", "view", now=now)
    assert ACCESS.has_mails(now)
    assert [ACCESS.send_mails(lambda: now, access_mail) for _ in range(2)] == [1, 0]
    [sent] = mail.outbox
    assert (sent.to, sent.subject) == (["bob@example.com"], "data: you have access")
    assert sent.body.startswith("alice@example.com shares the folder data") and "https://lab.example.org/" in sent.body
    client = browse(cast.bob)
    assert read(client, CARDS).strip() == "" and "shares the folder" not in read(client, LIST)
    assert delete_old_access_notices(now) == 0
    assert delete_old_access_notices(now + KEPT_FOR + timedelta(seconds=1)) == 1
