"""The account page and its access tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import AccessToken, User
from backendai.domain.accounts.services import create_token, user_of_token
from backendai.domain.accounts.sign_in.logins import FREE_TRIES
from backendai.domain.activity.models import AuditEntry
from tests.cast import PASSWORD, Cast

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def test_it_shows_a_new_token_once_and_never_again(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    made = client.post(reverse("web:tokens"), {"name": "nightly", "days": "30"})
    text = made.context["new_token"]
    assert user_of_token(text) == cast.alice
    assert text in made.content.decode()
    assert "no-store" in made["Cache-Control"]
    assert text not in client.get(reverse("web:tokens")).content.decode()
    assert AccessToken.objects.get().scopes == ["read"], "no more than was checked"
    client.post(reverse("web:tokens"), {"name": "runs", "days": "30", "scopes": ["sessions", "admin"]})
    assert "read, sessions, admin" in client.get(reverse("web:tokens")).content.decode()


def test_it_makes_tokens_without_an_end_when_asked(cast: Cast, browse: Browse) -> None:
    browse(cast.alice).post(reverse("web:tokens"), {"name": "always", "days": "0"})
    assert AccessToken.objects.get().expires_at is None


def test_it_refuses_a_token_without_a_name(cast: Cast, browse: Browse) -> None:
    answer = browse(cast.alice).post(reverse("web:tokens"), {"name": " ", "days": "30"})
    assert answer.status_code == 422
    assert "name" in answer.context["form"].errors
    assert not AccessToken.objects.exists()


def test_it_changes_the_password_and_ends_every_other_session(cast: Cast, browse: Browse) -> None:
    here, elsewhere = browse(cast.alice), browse(cast.alice)
    new = "battery horse correct"
    fields = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert here.post(reverse("web:password"), fields)["Location"] == reverse("web:account")
    cast.alice.refresh_from_db()
    assert cast.alice.check_password(new)
    assert here.get(reverse("web:account")).status_code == 200
    assert elsewhere.get(reverse("web:account")).status_code == 302
    entry = AuditEntry.objects.get(action="user.change-password")
    assert (entry.actor, entry.target_id, entry.details) == (cast.alice, str(cast.alice.pk), {})


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"old_password": "guess"}, "old_password", "not your current password"),
        ({"new_password2": "something else"}, "new_password2", "differ"),
        ({"new_password1": "short", "new_password2": "short"}, "new_password2", "at least 10 characters"),
    ],
)
def test_it_refuses_a_new_password_and_says_why(
    cast: Cast, browse: Browse, change: dict[str, str], field: str, words: str
) -> None:
    new = "battery horse correct"
    fields = {"old_password": PASSWORD, "new_password1": new, "new_password2": new} | change
    answer = browse(cast.alice).post(reverse("web:password"), fields)
    assert answer.status_code == 422
    assert words in str(answer.context["password_form"].errors[field])
    assert f'value="{change.get("new_password1", new)}"' not in answer.content.decode()
    cast.alice.refresh_from_db()
    assert cast.alice.check_password(PASSWORD)


def test_wrong_present_passwords_are_counted_like_those_at_sign_in(cast: Cast, browse: Browse) -> None:
    client, new = browse(cast.alice), "battery horse correct"
    fields = {"old_password": "guess", "new_password1": new, "new_password2": new}
    for _ in range(FREE_TRIES):
        assert client.post(reverse("web:password"), fields).status_code == 422
    answer = client.post(reverse("web:password"), fields | {"old_password": PASSWORD})
    assert "Too many attempts" in str(answer.context["password_form"].errors["old_password"])
    cast.alice.refresh_from_db()
    assert cast.alice.check_password(PASSWORD)
    assert AuditEntry.objects.filter(action="user.sign-in-failed").count() == FREE_TRIES


def test_a_new_password_needs_a_proof_of_the_last_five_minutes(
    cast: Cast, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, new = browse(cast.alice), "battery horse correct"
    monkeypatch.setattr("backendai.domain.accounts.sign_in.adapters.FRESH_SECONDS", -1)
    page = client.get(reverse("web:account")).content.decode()
    assert "Confirm that it is you" in page and 'name="old_password"' not in page
    fields = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    answer = client.post(reverse("web:password"), fields)
    assert answer["Location"] == "/account/security/confirm/?next=%2Faccount%2F"
    cast.alice.refresh_from_db()
    assert cast.alice.check_password(PASSWORD)
    assert client.post(answer["Location"], {"password": PASSWORD})["Location"] == reverse("web:account")
    monkeypatch.undo()
    assert client.post(reverse("web:password"), fields)["Location"] == reverse("web:account")
    cast.alice.refresh_from_db()
    assert cast.alice.check_password(new)


def test_it_revokes_ones_own_tokens_only(cast: Cast, browse: Browse) -> None:
    token, text = create_token(cast.alice, "hers")
    browse(cast.bob).post(reverse("web:token_revoke", args=[token.pk]))
    assert user_of_token(text) == cast.alice
    browse(cast.alice).post(reverse("web:token_revoke", args=[token.pk]))
    assert user_of_token(text) is None
