"""When a share of a session ends, and when it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import remove_member
from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession, SessionShare
from backendai.domain.compute.services.launching.sharing import share_session, unshare_session
from backendai.domain.compute.services.life.ending import terminate_session
from tests.cast import Cast
from tests.factories import make_session


def take_back(cast: Cast, session: ComputeSession) -> None:
    unshare_session(session, cast.alice, SessionShare.objects.get(session=session).pk)


def leave_domain(cast: Cast, session: ComputeSession) -> None:
    User.objects.filter(pk=cast.bob.pk).update(domain=cast.charlie.domain)


ENDS: dict[str, Callable[[Cast, ComputeSession], object]] = {
    "taken back": take_back,
    "session ended": lambda cast, session: terminate_session(session, cast.alice),
    "session purged": lambda cast, session: ComputeSession.objects.filter(pk=session.pk).delete(),
    "guest deactivated": lambda cast, session: set_active(cast.dana.pk, cast.bob, False, now=timezone.now()),
    "owner deactivated": lambda cast, session: set_active(cast.dana.pk, cast.alice, False, now=timezone.now()),
    "left the project": lambda cast, session: remove_member(cast.dana, cast.project, cast.bob),
    "owner left the project": lambda cast, session: remove_member(cast.dana, cast.project, cast.alice),
    "left the domain": leave_domain,
    "forbidden by the site": lambda cast, session: change_site(
        cast.dana, {"session_shares": False}, now=timezone.now()
    ),
}


@pytest.mark.django_db
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("with_project", [False, True])
def test_it_ends_with_its_reasons(cast: Cast, end: str, with_project: bool) -> None:
    session, client, now = make_session(cast.alice), Client(), timezone.now()
    whom: dict[str, Any] = {"project": cast.project.pk} if with_project else {"email": cast.bob.email}
    share_session(session, cast.alice, "use", **whom, now=now)
    client.force_login(cast.bob)
    assert client.get(f"/sessions/{session.pk}/").status_code == 200
    ENDS[end](cast, session)
    holds = (end in ("left the project", "owner left the project")) != with_project and "left" in end
    if end == "left the domain":
        holds = with_project  # he is still a member
    assert client.get(f"/sessions/{session.pk}/").status_code == (200 if holds else 302 if "guest" in end else 404)


@pytest.mark.django_db
def test_it_is_refused_with_the_reason(cast: Cast) -> None:
    session, now = make_session(cast.alice), timezone.now()

    def code(session: ComputeSession = session, actor: User = cast.alice, right: str = "view", **whom: Any) -> str:
        with pytest.raises(UserError) as refused:
            share_session(session, actor, right, now=now, **(whom or {"email": cast.bob.email}))
        return refused.value.code

    assert code(actor=cast.dana) == "not-owner"
    assert code(actor=cast.bob) == "not-owner"
    assert code(email=cast.charlie.email) == code(email="no@example.com") == code(email=cast.alice.email)
    assert code(project=cast.elsewhere.pk) == "not-found"
    assert code(email=cast.bob.email, project=cast.project.pk) == "whom"
    assert code(right="edit") == "invalid-request"
    for number in range(20):
        user = User.objects.create(email=f"p{number}@example.com", domain=cast.alice.domain)
        share_session(session, cast.alice, "view", email=user.email, now=now)
    assert code() == "too-many-shares"
    assert share_session(session, cast.alice, "use", email="p3@example.com", now=now).right == "use"
    assert session.shares.count() == 20
    terminate_session(session, cast.alice)
    assert code() == "not-shareable"
    change_site(cast.dana, {"session_shares": False}, now=now)
    assert code() == "no-session-shares"
