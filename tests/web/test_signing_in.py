"""Signing in and out."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import Login, ResourcePolicy, User
from backendai.domain.accounts.sign_in.logins import FREE_TRIES
from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.activity.models import AuditEntry
from tests.cast import PASSWORD, Cast
from tests.pages import markup

pytestmark = pytest.mark.django_db


def test_it_signs_in_by_address_whatever_its_case_and_goes_where_one_wanted_to_go(cast: Cast) -> None:
    client = Client()
    wanted = reverse("web:account")
    asked = client.get(wanted)
    assert asked.status_code == 302
    form = {"username": "ALICE@Example.com", "password": PASSWORD, "next": wanted}
    answer = client.post(asked["Location"], form)
    assert answer.status_code == 302
    assert answer["Location"] == wanted


def test_it_refuses_a_wrong_password_without_saying_which_part_was_wrong(cast: Cast) -> None:
    wrong = Client().post(reverse("web:login"), {"username": "alice@example.com", "password": "guess"})
    unknown = Client().post(reverse("web:login"), {"username": "nobody@example.com", "password": "guess"})
    for answer in (wrong, unknown):
        assert answer.status_code == 200
        assert b"Wrong e-mail address or password" in answer.content


def test_the_cursor_is_in_the_address_at_first_and_in_the_password_after_a_wrong_one(cast: Cast) -> None:
    def focused(answer: Any) -> list[str]:
        page = markup(answer)
        return [
            field for field in ("username", "password") if re.search(f'<input[^>]*name="{field}"[^>]* autofocus', page)
        ]

    assert focused(Client().get(reverse("web:login"))) == ["username"]
    for given, name in (({"username": "alice@example.com"}, "password"), ({}, "username")):
        assert focused(Client().post(reverse("web:login"), given | {"password": "guess"})) == [name]


def test_it_does_not_redirect_to_another_site_after_signing_in(cast: Cast) -> None:
    form = {"username": "alice@example.com", "password": PASSWORD, "next": "https://evil.example/"}
    assert Client().post(reverse("web:login"), form)["Location"] == reverse("web:sessions")


def test_it_signs_out_only_by_post(cast: Cast, browse) -> None:  # type: ignore[no-untyped-def]
    client = browse(cast.alice)
    assert client.get(reverse("web:logout")).status_code == 405
    client.post(reverse("web:logout"))
    assert client.get(reverse("web:sessions")).status_code == 302


def test_it_sends_a_policy_that_allows_no_inline_script(db: None) -> None:
    answer = Client().get(reverse("web:login"))
    policy = answer["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    page = markup(answer)
    assert "<style" not in page
    assert " style=" not in page
    assert " onclick=" not in page


@pytest.mark.parametrize("wanted", ["http://s-1.apps.localhost:8081/", "//evil.example/", "javascript:alert(1)"])
def test_it_sends_nobody_to_the_apps_of_users_nor_away_after_signing_in(cast: Cast, settings: Any, wanted: str) -> None:
    settings.ALLOWED_HOSTS = [".localhost", "testserver"]
    form = {"username": "alice@example.com", "password": PASSWORD, "next": wanted}
    assert Client().post(reverse("web:login"), form)["Location"] == reverse("web:sessions")


def test_the_administration_has_no_door_of_its_own(cast: Cast) -> None:
    asked = Client().get("/admin/login/?next=/admin/accounts/user/")
    assert asked["Location"] == "/login/?next=%2Fadmin%2Faccounts%2Fuser%2F"
    form = {"username": "dana@example.com", "password": PASSWORD}
    dana = Client()
    assert "/admin/" not in str(dana.post("/admin/login/", form).cookies)
    assert "_auth_user_id" not in dana.session
    assert dana.post(asked["Location"], form | {"next": "/admin/accounts/user/"})["Location"] == "/admin/accounts/user/"
    assert dana.get("/admin/accounts/user/").status_code == 200
    alice = Client()
    alice.force_login(cast.alice)
    assert alice.get("/admin/login/").status_code == 403


def test_it_keeps_who_signed_in_and_out_from_where_and_who_could_not(cast: Cast) -> None:
    AuditEntry.objects.all().delete()
    client = Client(REMOTE_ADDR="192.0.2.7", HTTP_USER_AGENT="Test browser")
    for name in ("alice@example.com", "nobody@example.com", "topsecretpassword@typed.by-mistake.example"):
        client.post("/login/", {"username": name, "password": "wrong"})
    client.post("/login/", {"username": "alice@example.com", "password": PASSWORD})
    login = Login.objects.get()
    assert (login.user, login.method, login.address, login.browser) == (
        cast.alice, "password", "192.0.2.7", "Test browser"
    )  # fmt: skip
    client.post("/logout/")
    assert not Login.objects.exists()
    entries = list(AuditEntry.objects.order_by("id").values_list("action", "actor", "details__tried"))
    failed = "user.sign-in-failed"
    assert entries == [
        (failed, None, "alice@example.com"),
        (failed, None, "no…"),
        (failed, None, "to…"),
        ("user.sign-in", cast.alice.pk, None),
        ("user.sign-out", cast.alice.pk, None),
    ]


@pytest.mark.parametrize("holder", ["alice", "project.domain"])
def test_the_oldest_login_ends_when_there_are_more_than_the_policy_lets_one_have(cast: Cast, holder: str) -> None:
    limited = cast.alice if holder == "alice" else cast.project.domain
    limited.policy = ResourcePolicy.objects.create(name="two", max_concurrent_logins=2)
    limited.save()
    browsers = [Client() for _ in range(4)]
    for number, browser in enumerate(browsers):
        if number == 2:
            browsers[0].post("/logout/")  # makes room for one
        browser.post("/login/", {"username": "alice@example.com", "password": PASSWORD})
    assert [browser.get("/account/").status_code for browser in browsers] == [302, 302, 200, 200]
    bob = Client()
    bob.post("/login/", {"username": "bob@example.com", "password": PASSWORD})
    assert Login.objects.count() == 3
    assert browsers[3].get("/account/").status_code == 200


def test_one_ends_all_other_logins_and_sees_where_they_are(cast: Cast) -> None:
    here, there = Client(HTTP_USER_AGENT="Here"), Client(HTTP_USER_AGENT="<b>There</b>")
    for browser in (here, there):
        browser.post("/login/", {"username": "alice@example.com", "password": PASSWORD})
    page = markup(here.get("/account/security/"))
    assert "Here" in page
    assert "&lt;b&gt;There" in page
    agents = {
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0": "Firefox on Linux",
        "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0": "Edge on Windows",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1": "Safari on iPhone",
        "": "unknown",
    }
    assert [Login(browser=text).device for text in agents] == list(agents.values())
    new = "a quite different password"
    here.post("/account/password/", {"old_password": PASSWORD, "new_password1": new, "new_password2": new})
    assert [browser.get("/account/").status_code for browser in (here, there)] == [200, 302]
    assert "This browser" in markup(here.get("/account/security/")), "it is known under its new key"
    there.post("/login/", {"username": "alice@example.com", "password": new})
    older = Client()
    older.force_login(User.objects.get(pk=cast.alice.pk))  # of a release that kept no list
    here.post("/account/security/sign-out/")
    assert [browser.get("/account/").status_code for browser in (here, there, older)] == [200, 302, 302]
    assert "This browser" in markup(here.get("/account/security/"))


def test_nobody_signs_up_unless_the_installation_says_so(cast: Cast, settings: Any) -> None:
    form = {"email": "Erin@example.com", "full_name": "Erin", "password": "a good long one", "again": "a good long one"}
    for setting in ("off", "nonsense"):
        settings.SIGNUP = setting
        assert Client().get("/signup/").status_code == Client().post("/signup/", form).status_code == 404
    settings.SIGNUP = "approval"
    assert b"Request an account" in Client().get("/login/").content
    for wrong in ({"again": "another one"}, {"password": "short", "again": "short"}, {"email": "erin"}):
        assert Client().post("/signup/", form | wrong).status_code == 422
    known = Client().post("/signup/", form | {"email": "alice@example.com"}, follow=True)
    fresh = Client().post("/signup/", form, follow=True)
    same = [re.sub(rb"csrfmiddlewaretoken\S* value=\S+", b"", one.content) for one in (known, fresh)]
    assert same[0] == same[1]
    assert b"as soon as an administrator has approved your account" in same[0]
    erin = User.objects.get(email="erin@example.com")
    assert (erin.is_active, erin.role, erin.domain, erin.projects.count()) == (False, "user", None, 0)
    client = Client()
    client.post("/login/", {"username": "erin@example.com", "password": "a good long one"})
    assert client.get("/account/").status_code == 302
    set_active(cast.dana.pk, erin, True, now=timezone.now())
    client.post("/login/", {"username": "erin@example.com", "password": "a good long one"})
    assert client.get("/account/").status_code == 200


def test_accounts_are_not_asked_for_without_end(cast: Cast, settings: Any) -> None:
    settings.SIGNUP = "approval"
    form = {"full_name": "Erin", "password": "a good long one", "again": "a good long one"}
    for number in range(FREE_TRIES + 3):
        answer = Client().post("/signup/", form | {"email": f"{number}@example.com"})
    assert b"Too many attempts" in answer.content
    assert User.objects.filter(is_active=False).count() == FREE_TRIES


def test_the_page_for_signing_in_asks_the_database_nothing(db: None, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
    with django_assert_num_queries(0):
        assert Client().get("/login/").status_code == 200
