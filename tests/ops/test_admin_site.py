"""Django's admin: every table can be read there, no secret is shown, and two tables allow a deletion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.contrib import admin
from django.db import models
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backendai.domain.accounts.models import Dotfile, KeyPair, Login, LoginCount, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession, KernelLog
from backendai.ops.admin_site import DELETABLE, PLAIN
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session
from tests.serving.world import make_endpoint

LOOKS_SECRET = re.compile(
    r"secret|digest|key|token|password|sealed|content|environ|data|code$|^login$|^entry$|spec$|document|param"
)
NEVER = {
    "accounts.User.password", "accounts.KeyPair.secret", "accounts.AccessToken.digest", "accounts.Login.session_key",
    "accounts.Dotfile.content", "accounts.BootstrapScript.content", "accounts.Invitation.digest",
    "accounts.DeviceRequest.user_code", "accounts.StoredAnswer.sealed", "mfa.Authenticator.data",
    "socialaccount.SocialAccount.extra_data", "cluster.Agent.token_digest", "cluster.JoinToken.digest",
    "catalog.Registry.sealed_password", "catalog.Registry.sealed_push_password", "compute.ComputeSession.environ",
    "compute.ComputeSession.spec", "compute.Kernel.environ", "compute.KernelLog.content", "compute.SessionFile.content",
    "serving.Revision.environ", "serving.EndpointToken.digest", "pipelines.Step.secrets", "appproxy.AppGrant.digest",
    "appproxy.AppGrant.login", "appproxy.FilesGrant.login",
}  # fmt: skip


@pytest.fixture
def dana(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.dana)
    return client


def shown_columns() -> Iterator[tuple[str, Any]]:
    for model, page in admin.site._registry.items():
        for name in {*page.fields, *page.list_display, *page.search_fields, *page.list_filter}:
            yield f"{model._meta.label}.{name.partition('__')[0]}", model._meta.get_field(name.partition("__")[0])


def test_every_table_of_the_platform_is_there() -> None:
    ours = {model for model in apps.get_models() if model.__module__.startswith("backendai.")}
    assert set(admin.site._registry) == ours | {Authenticator, SocialAccount}


def test_no_column_that_looks_secret_is_shown_searched_or_filtered() -> None:
    shown = dict(shown_columns())
    assert {label for label, field in shown.items() if isinstance(field, models.BinaryField)} == set()
    suspects = {label for label, field in shown.items() if LOOKS_SECRET.search(field.name) and not field.is_relation}
    assert suspects - PLAIN == set(), "hide it in ops/admin_site.py, or list it as plain there"
    assert set(shown) >= PLAIN, "a column of this name is gone"
    for label in NEVER:
        app_label, model, name = label.split(".")
        assert apps.get_model(app_label, model)._meta.get_field(name)
    assert NEVER & set(shown) == set()


@pytest.mark.django_db
def test_lists_and_rows_are_shown_without_secrets_and_cannot_be_changed(dana: Client, cast: Cast) -> None:
    session = make_running_session(cast.alice, make_agent(), environ={"TOKEN": "sesame"})
    make_endpoint(cast.alice)
    KernelLog.objects.create(kernel=session.kernels.get(), content=b"sesame", size=6, saved_at=timezone.now())
    KeyPair.objects.update(secret="sesame")
    Login.objects.create(user=cast.alice, session_key="sesame", method="password")
    Dotfile.objects.create(user=cast.alice, path=".netrc", content="sesame", permission="600")
    User.objects.filter(pk=cast.alice.pk).update(password="sesame")
    seen = 0
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        pages = [f"{reverse(f'{name}_changelist')}?q=a"]
        pages += [reverse(f"{name}_change", args=[row.pk]) for row in model._default_manager.all()[:1]]
        for page in pages:
            answer = dana.get(page)
            assert (answer.status_code, b"sesame" in answer.content) == (200, False), page
            seen += 1
        assert dana.get(reverse(f"{name}_add")).status_code == 403
        if len(pages) > 1:
            assert dana.post(pages[1], {"name": "other"}).status_code == 403, pages[1]
            assert (dana.get(pages[1].replace("/change/", "/delete/")).status_code == 200) == (model in DELETABLE)
    assert seen > len(admin.site._registry) + 20
    page = dana.get(reverse("admin:compute_computesession_change", args=[session.pk])).content.decode()
    assert f'href="{reverse("web:session", args=[session.pk])}"' in page


@pytest.mark.django_db
def test_a_list_does_not_tell_whether_a_secret_begins_so(dana: Client) -> None:
    path = reverse("admin:accounts_user_changelist")
    assert dana.get(path, {"password__startswith": "argon2"}).status_code == 400
    assert dana.get(path, {"role": "superadmin"}).status_code == 200


@pytest.mark.django_db
def test_a_list_asks_as_often_for_many_rows(
    dana: Client, cast: Cast, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(4):
        make_session(cast.alice, name=f"one-{number}")
    assert ComputeSession.objects.count() == 4
    for name in ("compute_computesession", "compute_kernel", "compute_schedulingrecord"):
        with django_assert_max_num_queries(7):
            assert dana.get(reverse(f"admin:{name}_changelist")).status_code == 200


@pytest.mark.django_db
def test_a_wait_and_an_identity_are_deleted_there_and_the_trail_names_them(dana: Client, cast: Cast) -> None:
    waits = [LoginCount.objects.create(key=f"alice {number}", attempts=9) for number in range(2)]
    identity = SocialAccount.objects.create(user=cast.alice, provider="oidc", uid="alice")
    chosen = {"action": "delete_selected", "_selected_action": [row.pk for row in waits], "post": "yes"}
    assert dana.post(reverse("admin:accounts_logincount_changelist"), chosen).status_code == 302
    path = reverse("admin:socialaccount_socialaccount_delete", args=[identity.pk])
    assert dana.post(path, {"post": "yes"}).status_code == 302
    assert not LoginCount.objects.exists() and not SocialAccount.objects.exists()
    trail = AuditEntry.objects.filter(action__endswith=".delete").values_list("actor", "action", "target_id")
    wanted = {(cast.dana.pk, "login-count.delete", row.pk) for row in waits}
    assert set(trail) == wanted | {(cast.dana.pk, "identity.delete", str(identity.pk))}


@pytest.mark.django_db
def test_the_portal_leads_to_the_rules_and_the_admin_back(dana: Client, cast: Cast) -> None:
    agent = make_agent()
    rules = reverse("manage:group", args=[agent.resource_group_id])
    assert f'href="{rules}"' in dana.get(reverse("manage:agent", args=[agent.pk])).content.decode()
    assert f'href="{rules}"' in dana.get(reverse("web:sessions")).content.decode()
    assert f'href="{reverse("web:sessions")}">Sessions</a>' in dana.get(reverse("admin:index")).content.decode()
    client = Client()
    client.force_login(cast.alice)
    assert "/admin/" not in client.get(reverse("web:sessions")).content.decode()
