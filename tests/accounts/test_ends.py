"""Letting somebody in no more, and again."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from django.utils.crypto import salted_hmac

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.models import AccessToken, Login, User
from backendai.domain.accounts.services import create_token
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.accounts.sign_in.credentials import Credential, fingerprints_of, user_by
from backendai.domain.accounts.sign_in.revocation import end_logins, set_active
from backendai.domain.activity.models import AuditEntry
from tests.cast import Cast

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def now() -> datetime:
    return timezone.now()


def test_it_says_who_let_whom_in_no_more_and_again_and_only_once(cast: Cast, now: datetime) -> None:
    AuditEntry.objects.all().delete()
    told = [set_active(cast.dana.pk, cast.alice, active, now=now) for active in (True, False, False, True)]
    assert told == [False, True, False, True]
    entries = AuditEntry.objects.order_by("id").values_list("action", "actor", "target_id", "details")
    details = {"email": "alice@example.com"}
    assert list(entries) == [
        ("user.deactivate", cast.dana.pk, str(cast.alice.pk), details),
        ("user.activate", cast.dana.pk, str(cast.alice.pk), details),
    ]


def test_tokens_stay_ended_but_are_still_there_to_be_seen(cast: Cast, now: datetime) -> None:
    token, _ = create_token(cast.alice, "script")
    theirs, _ = create_token(cast.bob, "script")
    pair, _ = create_key_pair(cast.alice, "laptop")
    assert user_by(Credential(key_pair=pair.pk), now) == cast.alice
    set_active(cast.dana.pk, cast.alice, False, now=now)
    assert user_by(Credential(key_pair=pair.pk), now) is None
    set_active(cast.dana.pk, cast.alice, True, now=now)
    assert user_by(Credential(key_pair=pair.pk), now) is None, "its secret is gone, its name is not"
    assert list(AccessToken.objects.order_by("expires_at").values_list("pk", "expires_at")) in (
        [(token.pk, now), (theirs.pk, None)],
        [(theirs.pk, None), (token.pk, now)],
    )


def test_the_last_superadmin_stays_one(cast: Cast, now: datetime) -> None:
    with pytest.raises(Conflict, match="only active superadmin") as refused:
        set_active(cast.dana.pk, cast.dana, False, now=now)
    assert refused.value.code == "last-superadmin"
    assert User.objects.filter(pk=cast.dana.pk, role="superadmin", is_active=True).exists()
    set_active(None, cast.alice, True, now=now)
    User.objects.filter(pk=cast.alice.pk).update(role="superadmin")
    assert set_active(cast.alice.pk, cast.dana, False, now=now)


def test_a_login_of_an_older_release_is_still_good_and_ends_like_others(cast: Cast, now: datetime) -> None:
    plain = salted_hmac(
        "django.contrib.auth.models.AbstractBaseUser.get_session_auth_hash", cast.alice.password, algorithm="sha256"
    ).hexdigest()
    assert cast.alice.get_session_auth_hash() == plain
    browser = Client()
    browser.force_login(cast.alice)
    assert browser.get("/account/").status_code == 200
    assert not Login.objects.exists()
    set_active(cast.dana.pk, cast.alice, False, now=now)
    set_active(cast.dana.pk, cast.alice, True, now=now)
    assert browser.get("/account/").status_code == 302


def test_one_login_can_be_left_when_the_others_end(cast: Cast) -> None:
    browsers = [Client() for _ in range(3)]
    for browser in browsers:
        browser.force_login(cast.alice)
        Login.objects.create(user=cast.alice, session_key=browser.session.session_key, method="password")
    kept = browsers[1].session.session_key
    assert end_logins(cast.alice, but=kept) == 2
    assert [browser.get("/account/").status_code for browser in browsers] == [302, 200, 302]
    assert list(Login.objects.values_list("session_key", flat=True)) == [kept]


def test_however_many_are_open_a_look_at_their_credentials_costs_three_queries(
    cast: Cast, now: datetime, django_assert_num_queries
) -> None:  # type: ignore[no-untyped-def]
    browsers = [Client() for _ in range(4)]
    for browser, user in zip(browsers, (cast.alice, cast.alice, cast.bob, cast.dana), strict=True):
        browser.force_login(user)
    create_token(cast.alice, "script")
    digests = AccessToken.objects.values_list("digest", flat=True)
    credentials = [Credential(login=str(browser.session.session_key)) for browser in browsers]
    credentials += [*(Credential(token=digest) for digest in digests), Credential(), Credential(login="made-up")]
    with django_assert_num_queries(3):
        before = fingerprints_of(credentials, now)
    Session.objects.filter(session_key=browsers[2].session.session_key).delete()
    cast.dana.set_password("another good password")
    cast.dana.save()
    after = fingerprints_of(credentials, now)
    assert [before[one] == after[one] for one in credentials] == [True, True, False, False, True, True, True]
    with django_assert_num_queries(0):
        assert fingerprints_of([Credential()], now) == {Credential(): None}
