"""Delete pages say beforehand what is in use, and offer to deactivate it instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import Domain, Project, ResourcePolicy, User
from backendai.domain.accounts.services import create_domain, create_project
from backendai.domain.activity.models import AuditEntry
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_session

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def page_of(client: Client, kind: str, row: Any) -> str:
    text = client.get(reverse(f"manage:{kind}-delete", args=[row.pk])).content.decode()
    return re.sub("[\u2068\u2069]", "", " ".join(text.split()))


def offers(page: str) -> list[str]:
    form = page.partition('class="box-actions"')[2].partition("</form>")[0]
    return [text.strip() for text in re.findall(r"<button[^>]*>([^<]+)<", form)]


def test_a_domain_a_project_and_a_group_in_use_can_only_be_deactivated(cast: Cast, dana: Client) -> None:
    make_agent("gpu-01")
    make_session(cast.alice)
    domain, group = cast.project.domain, make_group()
    wanted = [
        ("domain", domain, [f"/manage/users/?domain={domain.pk}", f"/manage/projects/?domain={domain.pk}"]),
        ("project", cast.project, [f"/?project={cast.project.name}"]),
        ("group", group, [f"/manage/agents/?resource_group={group.pk}", "/?group=default"]),
    ]
    for kind, row, links in wanted:
        page = page_of(dana, kind, row)
        assert offers(page) == ["Deactivate"], kind
        assert "cannot be deleted while it is in use" in page
        assert all(f'href="{link}"' in page for link in links), (kind, page)
        assert dana.post(reverse(f"manage:{kind}-delete", args=[row.pk])).status_code == 422
        answer = dana.post(reverse(f"manage:{kind}-delete", args=[row.pk]), {"action": "deactivate"})
        assert answer.status_code == 302
        row.refresh_from_db()
        assert not row.is_active
        assert "already inactive" in page_of(dana, kind, row)
        assert offers(page_of(dana, kind, row)) == []
    assert (
        AuditEntry.objects.filter(action__in=["domain.change", "project.change", "resource-group.change"]).count() == 3
    )


def test_what_nothing_uses_is_deleted(cast: Cast, dana: Client) -> None:
    domain = create_domain(cast.dana, "empty")
    project = create_project(cast.dana, cast.project.domain, "unused")
    rows = [
        ("project", project, Project),
        ("domain", domain, Domain),
        ("group", make_group("spare"), type(make_group())),
    ]
    for kind, row, model in rows:
        assert offers(page_of(dana, kind, row)) == [f"Delete {kind}"]
        assert dana.post(reverse(f"manage:{kind}-delete", args=[row.pk])).status_code == 302
        assert not model._default_manager.filter(pk=row.pk).exists()


def test_a_policy_that_somebody_has_names_them_and_offers_nothing(cast: Cast, dana: Client) -> None:
    policy = ResourcePolicy.objects.create(name="students")
    assert offers(page_of(dana, "policy", policy)) == ["Delete policy"]
    User.objects.filter(pk=cast.alice.pk).update(policy=policy)
    page = page_of(dana, "policy", policy)
    assert (offers(page), "1 user<" in page) == ([], True)
    assert dana.post(reverse("manage:policy-delete", args=[policy.pk]), {"action": "deactivate"}).status_code == 422
    assert ResourcePolicy.objects.filter(pk=policy.pk).exists()
