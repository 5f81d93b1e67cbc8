"""Signing in with a provider of identities, which is a real one here, only small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.claims import place_of, wrong_mapping
from backendai.domain.accounts.models import Login, Membership, User
from backendai.domain.accounts.services import create_token, user_of_token
from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.activity.models import AuditEntry
from backendai.ops.checks import check_sign_in
from backendai.ops.doctor.sign_in import single_sign_on, visitors
from tests.cast import PASSWORD, Cast
from tests.effort import some
from tests.web.identity_provider import CLIENT_ID, CLIENT_SECRET, FOREIGN_KEY, Provider, identity_provider

pytestmark = pytest.mark.django_db

OUT = "/login/with/sso/"
MAPPING = {
    "vision": {"domain": "default", "project": "vision"},
    "vision-leads": {"domain": "default", "project": "vision", "role": "project-admin"},
    "audio": {"domain": "default", "project": "audio"},
    "leads": {"domain": "default", "role": "admin"},
    "roots": {"role": "superadmin"},
    "guests": {"domain": "elsewhere", "project": "other", "role": "admin"},
}
ERIN = {"sub": "e-1", "email": "Erin@Example.com", "email_verified": True, "name": "Erin E.", "groups": ["vision"]}


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    with identity_provider() as provider:
        app = {
            "provider_id": "sso",
            "name": "Campus",
            "client_id": CLIENT_ID,
            "secret": CLIENT_SECRET,
            "settings": {"server_url": provider.url},
        }
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
        settings.OIDC_NAME, settings.OIDC_MAPPING = "Campus", MAPPING
        provider.person = dict(ERIN)
        yield provider


def sign_in(provider: Provider, client: Client | None = None, **person: Any) -> tuple[Client, Any]:
    client = client or Client()
    provider.person = provider.person | person
    return client, client.get(provider.authorize(client.get(OUT)["Location"]))


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


def places(user: User) -> set[str]:
    return {f"{row.project.domain.name}/{row.project.name}" for row in Membership.objects.filter(user=user)}


def test_the_first_sign_in_makes_the_user_where_the_groups_say(cast: Cast, provider: Provider) -> None:
    assert b"Continue with Campus" in Client().get("/login/").content
    client, answer = sign_in(provider)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert is_in(client)
    erin = User.objects.get(email="erin@example.com")
    assert (erin.full_name, erin.role, erin.domain, places(erin)) == (
        "Erin E.", "user", cast.project.domain, {"default/vision"}
    )  # fmt: skip
    assert not erin.has_usable_password()
    assert erin.key_pairs.count() == 1
    assert Login.objects.get().method == "sso"
    actions = AuditEntry.objects.filter(target_id=str(erin.pk)).order_by("id").values_list("action", flat=True)
    assert list(actions) == ["user.create", "user.follow-groups", "user.sign-in"]
    kept = SocialAccount.objects.get()
    assert (kept.uid, kept.extra_data) == ("e-1", {"id_token": {"sub": "e-1", "iss": provider.url}})
    assert b"Campus knows you" in client.get("/account/security/").content


def test_role_and_projects_follow_the_groups_at_every_sign_in(cast: Cast, provider: Provider) -> None:
    first, _ = sign_in(provider)
    erin = User.objects.get(email="erin@example.com")
    by_hand = Membership.objects.create(user=erin, project=cast.elsewhere)
    for groups, role, expected in [
        (["vision", "audio"], "user", {"default/vision", "default/audio"}),
        (["audio", "leads", "unknown"], "admin", {"default/audio"}),
        (["roots", "audio"], "superadmin", {"default/audio"}),
        (["vision", "guests"], "user", {"default/vision"}),
        (["vision"], "user", {"default/vision"}),
    ]:
        client, _ = sign_in(provider, groups=groups)
        erin.refresh_from_db()
        assert is_in(client)
        assert (erin.role, erin.is_superuser, places(erin) - {"elsewhere/other"}) == (
            role, role == "superadmin", expected
        )  # fmt: skip
    assert not Membership.objects.filter(pk=by_hand.pk).exists(), "the mapping names that project, and no group of hers"
    assert not is_in(first), "another role ended it"
    told = AuditEntry.objects.filter(action="user.follow-groups").order_by("id").values_list("details", flat=True)
    assert list(told)[2]["changes"] == {"role": ["user", "admin"]}
    assert (list(told)[2]["joined"], list(told)[2]["left"]) == ([], ["default/vision"])
    assert list(told)[1]["joined"] == ["default/audio as member"]


def test_a_group_can_make_admins_of_a_project_and_no_longer(cast: Cast, provider: Provider) -> None:
    for groups, role in ((["vision"], "member"), (["vision", "vision-leads"], "admin"), (["vision"], "member")):
        sign_in(provider, groups=groups)
        erin = User.objects.get(email="erin@example.com")
        assert (erin.role, erin.memberships.get().role) == ("user", role)


def test_a_role_that_was_given_by_hand_does_not_outlast_the_next_sign_in(cast: Cast, provider: Provider) -> None:
    sign_in(provider)
    User.objects.filter(email="erin@example.com").update(role="superadmin", is_superuser=True)
    client, _ = sign_in(provider)
    assert User.objects.get(email="erin@example.com").role == "user"
    assert client.get("/admin/", follow=True).status_code == 403


def test_whoever_is_in_no_group_any_more_loses_everything_but_the_account(cast: Cast, provider: Provider) -> None:
    first, _ = sign_in(provider, groups=["vision", "leads"])
    client, answer = sign_in(provider, groups=["unknown"])
    assert answer.status_code == 403
    assert b"None of your groups" in answer.content
    erin = User.objects.get(email="erin@example.com")
    assert (erin.role, places(erin), is_in(first), is_in(client)) == ("user", set(), False, False)
    _, stranger = sign_in(provider, sub="f-2", email="frank@example.com", groups=None)
    assert stranger.status_code == 403
    assert not User.objects.filter(email="frank@example.com").exists()


def test_the_last_superadmin_stays_one(cast: Cast, provider: Provider) -> None:
    sign_in(provider, groups=["roots", "vision"])
    set_active(None, cast.dana, False, now=timezone.now())
    client, _ = sign_in(provider, groups=["vision"])
    assert User.objects.get(email="erin@example.com").role == "superadmin"
    assert is_in(client)


def test_an_account_that_exists_is_linked_only_where_that_is_allowed_and_the_address_verified(
    cast: Cast, provider: Provider, settings: Any
) -> None:
    for allowed, verified in ((False, True), (True, False), (True, "true"), (True, None)):
        settings.OIDC_LINK_BY_EMAIL = allowed
        client, answer = sign_in(provider, email="alice@example.com", email_verified=verified)
        assert answer.status_code == 403
        assert b"is not linked to this identity" in answer.content
        assert not is_in(client)
    assert not SocialAccount.objects.exists()
    client, _ = sign_in(provider, email="alice@example.com", email_verified=True)
    assert is_in(client)
    assert SocialAccount.objects.get().user == cast.alice
    assert AuditEntry.objects.filter(action="user.link-identity", actor=cast.alice).count() == 1
    client, _ = sign_in(provider, email="somebody.else@example.com", email_verified=False)
    assert is_in(client), "the identity counts from now on, whatever its address"
    assert User.objects.get(pk=cast.alice.pk).email == "alice@example.com"


def test_whoever_made_the_account_before_it_was_linked_is_out(cast: Cast, provider: Provider, settings: Any) -> None:
    settings.OIDC_LINK_BY_EMAIL = True
    maker = Client()
    maker.post("/login/", {"username": "alice@example.com", "password": PASSWORD})
    assert is_in(maker)
    Authenticator.objects.create(user=cast.alice, type="webauthn", data={"name": "the maker's"})
    _, token = create_token(cast.alice, "the maker's")
    client, _ = sign_in(provider, email="alice@example.com", email_verified=True, groups=["roots"])
    assert is_in(client)
    assert not is_in(maker)
    maker.post("/login/", {"username": "alice@example.com", "password": PASSWORD})
    assert not is_in(maker)
    assert user_of_token(token) is None
    assert not Authenticator.objects.exists()


def test_an_account_that_is_not_active_is_not_linked(cast: Cast, provider: Provider, settings: Any) -> None:
    settings.OIDC_LINK_BY_EMAIL = True
    User.objects.filter(pk=cast.alice.pk).update(is_active=False)
    client, answer = sign_in(provider, email="alice@example.com", email_verified=True)
    assert (answer.status_code, is_in(client)) == (403, False)
    assert b"is not active" in answer.content
    assert not SocialAccount.objects.exists()


def test_a_user_who_was_deactivated_here_stays_out(cast: Cast, provider: Provider) -> None:
    sign_in(provider)
    erin = User.objects.get(email="erin@example.com")
    set_active(cast.dana.pk, erin, False, now=timezone.now())
    client, answer = sign_in(provider, groups=["roots"])
    assert answer["Location"] == "/login/"
    assert b"not active" in client.get("/login/").content
    erin.refresh_from_db()
    assert (is_in(client), erin.is_active, erin.role) == (False, False, "user")


@some("fault", [
        {"key": FOREIGN_KEY}, {"token_over": {"aud": "another client"}}, {"token_over": {"iss": "http://evil.example"}},
        {"token_over": {"exp": 1}}, {"token_over": {"sub": "somebody else"}}, {"userinfo_over": {"sub": "else"}},
        {"userinfo_over": {"email": "no address"}}, {"refuses": True},
    ], 4, ids=lambda fault: next(iter(fault)))  # fmt: skip
def test_what_cannot_be_trusted_lets_nobody_in(cast: Cast, provider: Provider, fault: dict[str, Any]) -> None:
    client = Client()
    back = provider.authorize(client.get(OUT)["Location"])
    for name, value in fault.items():
        setattr(provider, name, value)
    answer = client.get(back)
    assert 400 <= answer.status_code < 503
    assert b"Back to signing in" in answer.content
    assert not is_in(client)
    assert not User.objects.filter(email="erin@example.com").exists()


def test_an_answer_counts_in_the_browser_that_asked_and_once(cast: Cast, provider: Provider) -> None:
    victim, thief = Client(), Client()
    back = provider.authorize(thief.get(OUT)["Location"])
    victim.get(back)
    assert not is_in(victim)
    thief.get(back)
    assert is_in(thief)
    assert not is_in(sign_in_again(thief, back))
    cancelled = Client()
    url = cancelled.get(OUT)["Location"]
    state = provider.authorize(url).rpartition("state=")[2]
    answer = cancelled.get(f"{OUT}callback/?error=access_denied&state={state}", follow=True)
    assert b"Not signed in" in answer.content


def sign_in_again(client: Client, back: str) -> Client:
    client.post("/logout/")
    client.get(back)
    return client


def test_a_provider_that_does_not_answer_is_said_and_is_no_fault_of_ours(cast: Cast, provider: Provider) -> None:
    provider.refuses = True
    answer = Client().get(OUT)
    assert answer.status_code == 502
    assert b"returned an invalid response" in answer.content


def test_nobody_connects_accounts_by_hand_nor_names_other_providers(cast: Cast, provider: Provider) -> None:
    client = Client()
    client.force_login(cast.alice)
    back = provider.authorize(client.get(f"{OUT}?process=connect")["Location"])
    assert client.get(back).status_code == 403
    assert not SocialAccount.objects.exists()
    assert client.get("/login/with/openid_connect/").status_code == 404


def test_another_provider_cannot_speak_for_the_people_of_the_first(cast: Cast, provider: Provider) -> None:
    sign_in(provider)
    SocialAccount.objects.update(extra_data={"id_token": {"sub": "e-1", "iss": "https://the-first.example"}})
    client, answer = sign_in(provider)
    assert not is_in(client)
    assert b"Back to signing in" in answer.content


@pytest.mark.parametrize(
    ("mapping", "part"),
    [
        ({}, "JSON"), ("{not json", "JSON"), ([], "JSON"), ({"a": "vision"}, "object"), ({"a": {}}, "object"),
        ({"a": {"projects": "x"}}, "object"), ({"a": {"domain": ""}}, "empty"), ({"a": {"domain": 1}}, "texts"),
        ({"a": {"project": "x"}}, "no domain"), ({"a": {"role": "root"}}, "project-admin, admin or superadmin"),
        ({"a": {"role": "admin"}}, "no domain"), ({"a": {"role": "project-admin"}}, "no project"),
    ],
    ids=str,
)  # fmt: skip
def test_a_mapping_that_means_nothing_is_refused_with_the_reason(mapping: Any, part: str) -> None:
    assert part in wrong_mapping(mapping)
    assert wrong_mapping(MAPPING) == ""


def test_everybody_can_be_given_something() -> None:
    place = place_of([], {"*": {"domain": "default", "project": "open"}})
    assert place is not None
    assert (place.domain, place.projects, place.role) == ("default", {"open": "member"}, "user")


def test_a_provider_that_is_half_set_up_is_refused_at_start(settings: Any) -> None:
    assert check_sign_in() == []
    settings.OIDC_ISSUER = "http://identities.example"
    assert [one.id for one in check_sign_in()] == ["portal.E023"]
    assert "BACKENDAI_OIDC_CLIENT_ID, BACKENDAI_OIDC_CLIENT_SECRET, BACKENDAI_OIDC_MAPPING" in check_sign_in()[0].msg
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET, settings.OIDC_MAPPING = "portal", "secret", "{not json"
    assert [one.id for one in check_sign_in()] == ["portal.E024", "portal.E025"]
    settings.OIDC_ISSUER, settings.OIDC_MAPPING = "https://identities.example", MAPPING
    assert check_sign_in() == []
    settings.SIGNUP, settings.REQUIRE_MFA = "on", "yes"
    assert [one.id for one in check_sign_in()] == ["portal.E021", "portal.E022"]


def test_the_doctor_asks_the_provider_and_looks_for_the_projects(cast: Cast, provider: Provider, settings: Any) -> None:
    settings.OIDC_MAPPING = {}
    assert single_sign_on() == []
    settings.OIDC_MAPPING, settings.OIDC_ISSUER = MAPPING, provider.url
    assert [one.message for one in single_sign_on()] == ["is set up by half"]
    settings.OIDC_CLIENT_ID = settings.OIDC_CLIENT_SECRET = "given"
    found = {one.name: (one.level, one.message) for one in single_sign_on()}
    assert found["single sign-on"] == ("ok", f"{provider.url} answers")
    assert found["groups"] == ("warning", "no project is named default/audio yet")
    settings.OIDC_ISSUER = provider.url.replace("127.0.0.1", "localhost")
    assert "calls itself" in single_sign_on()[0].message
    provider.refuses = True
    assert "no usable answer" in single_sign_on()[0].message
    settings.OIDC_MAPPING = {"a": "b"}
    assert [one.level for one in single_sign_on()] == ["problem"]


def test_the_doctor_sees_that_all_logins_come_from_a_proxy_that_is_not_named(cast: Cast) -> None:
    assert visitors().level == "ok"
    for number in range(5):
        user = User.objects.create(email=f"p{number}@example.com")
        Login.objects.create(user=user, session_key=f"s{number}", method="password", address="172.18.0.1")
    assert (visitors().level, "BACKENDAI_PROXIES" in visitors().fix) == ("warning", True)
    Login.objects.filter(session_key="s0").update(address="203.0.113.9")
    assert visitors().level == "ok"
