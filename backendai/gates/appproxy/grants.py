"""Exchanges one-time codes for cookies, and cookies and access tokens for the apps that they open. It blocks, as it
queries the database.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import AccessToken, User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import token_of
from backendai.domain.accounts.sign_in.credentials import Credential, user_by
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.services.apps.of_session import (
    Claims,
    CodeRefused,
    apps_of,
    behind_label,
    main_kernel,
    read_code,
)
from backendai.domain.compute.services.apps.public import public_app_at
from backendai.domain.compute.services.launching.sharing import note_use_of_share
from backendai.domain.compute.status import ShareRight
from backendai.gates.appproxy.models import AppGrant
from backendai.gates.appproxy.programs import BEARER
from backendai.gates.gateways.reach import reach
from backendai.gates.gateways.targets import NOBODY, Denied, Target

LIFETIME = timedelta(days=7)
_REMEMBERED_OPENINGS = 1024


def redeem(code: str, host: str, now: datetime, *, origin: str = "") -> str:
    """Exchange a one-time code of this host for the cookie that opens the app. ``origin``: the page that sent the
    code, as its browser reports it; only the portal or none is allowed. Raises Denied.
    """
    try:
        claims = read_code(code, now)
    except CodeRefused:
        raise Denied("code-refused", Message("This link has expired. Open the app from the portal again.")) from None
    if claims.host != host:
        raise Denied("code-refused", Message("This link belongs to a different app."))
    if origin and origin not in settings.CSRF_TRUSTED_ORIGINS and urlsplit(origin).netloc.lower() != claims.portal:
        raise Denied(
            "foreign-origin", Message("Open the app from the portal: a page of another origin may not sign you in.")
        )
    user, target = _entitled(claims.user_id, claims.credential, claims.kernel_id, claims.generation, now)
    text = secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            _write(claims, text, now)
            _note_opening(user, target, claims.service)
    except IntegrityError:
        raise Denied(
            "code-used", Message("This link has already been used. Open the app from the portal again.")
        ) from None
    AppGrant.objects.filter(expires_at__lt=now).delete()
    return text


def open_by(cookies: Sequence[str], host: str, now: datetime) -> Target:
    """Return the app that one of these cookies opens on this host, else the public app there. Checks again that the
    person is signed in and may see the session, and that it runs. After ``BEARER`` comes an access token, which opens
    what its own scope and person may. Raises Denied.
    """
    if cookies[:1] == (BEARER,):
        return _open_by_token(cookies[1], host, now)
    try:
        return _open_by_grant(cookies, host, now)
    except Denied:
        if target := _open_to_everybody(host, now):
            return target
        raise


def digest_of(text: str) -> str:
    """Return the SHA-256 digest under which a cookie is stored. Cookies are long and random, so they need no salt."""
    return hashlib.sha256(text.encode()).hexdigest()


def _open_by_grant(cookies: Sequence[str], host: str, now: datetime) -> Target:
    lasting = AppGrant.objects.filter(host=host, expires_at__gt=now)
    grant: AppGrant | None = lasting.filter(digest__in=[digest_of(text) for text in cookies]).first()
    if grant is None:
        raise Denied("not-entered", Message("This app is private. Sign in to the portal to open it."))
    credential = Credential(login=grant.login, token=grant.token, key_pair=grant.key_pair)
    _, kernel = _entitled(grant.user_id, credential, grant.kernel_id, grant.generation, now)
    gateway_url = kernel.agent.gateway_url if kernel.agent else ""
    return Target(
        kernel.pk,
        grant.generation,
        grant.service,
        grant.port,
        gateway_url,
        credential,
        kernel.session_id,
        grant.pk.hex,
        slowness=kernel.agent.slowness if kernel.agent else 1,
    )


def _open_by_token(text: str, host: str, now: datetime) -> Target:
    token = token_of(text)
    if token is None:
        raise Denied("token-refused", Message("This access token is not valid. Create one on your account page."))
    if Scope.SESSIONS not in token.scopes:
        raise Denied("token-scope", Message("Apps need an access token with the scope sessions."))
    sessions, service = behind_label(host.partition(".")[0]) or (None, "")
    found = sessions.open_to(token.user, ShareRight.USE) if sessions is not None else None
    session = found.select_related("image", "resource_group").first() if found is not None else None
    kernel = main_kernel(session) if session is not None else None
    app = next((one for one in apps_of(session, kernel) if one.name == service), None) if session is not None else None
    if session is None or app is None:
        raise Denied("app-not-found", Message("This access token opens no app at this address."))
    if app.code or kernel is None:
        raise Denied("session-ended" if session.is_terminal else app.code, app.reason)
    credential = Credential(token=token.digest)
    user, kernel = _entitled(token.user_id, credential, kernel.pk, kernel.generation, now)
    _note_opening_today(user, kernel, service, token, now.date())
    return Target(
        kernel.pk,
        kernel.generation,
        service,
        app.port,
        kernel.agent.gateway_url if kernel.agent else "",
        credential,
        session.pk,
        token.digest[:32],
        slowness=kernel.agent.slowness if kernel.agent else 1,
    )


@lru_cache(_REMEMBERED_OPENINGS)
def _note_opening_today(user: User, kernel: Kernel, service: str, token: AccessToken, day: date) -> None:
    """Record an opening by token once a day: each request checks the access anew."""
    _note_opening(user, kernel, service, token=token.name)


def _note_opening(user: User, kernel: Kernel, service: str, **details: str) -> None:
    session = kernel.session
    names = both_names(user, user if session.owner_id == user.pk else session.owner)
    audit(user.pk, "app.open", "session", [session.pk], service=service, **details, **names)
    if names:
        note_use_of_share(user, session.pk, now=timezone.now())


def _open_to_everybody(host: str, now: datetime) -> Target | None:
    found = public_app_at(host, now)
    if found is None:
        return None
    kernel, app, closes_at = found
    if app.code or kernel.agent is None:
        raise Denied("session-ended", Message("The session is no longer running."))
    gateway_url = kernel.agent.gateway_url
    return Target(
        kernel.pk,
        kernel.generation,
        app.name,
        app.port,
        gateway_url,
        NOBODY,
        kernel.session_id,
        until=closes_at,
        slowness=kernel.agent.slowness,
    )


def _entitled(
    user_id: UUID, credential: Credential, kernel_id: UUID, generation: int, now: datetime
) -> tuple[User, Kernel]:
    user = user_by(credential, now)
    if user is None or user.pk != user_id:
        raise Denied("signed-out", Message("You are signed out of the portal. Sign in and open the app again."))
    try:
        return user, reach(user, "app", kernel_id=kernel_id, generation=generation)
    except Denied as error:
        if error.code == "not-running":
            raise Denied("session-ended", Message("The session is no longer running.")) from None
        raise Denied("not-entered", Message("You may not open this app.")) from None


def _write(claims: Claims, text: str, now: datetime) -> None:
    AppGrant.objects.create(
        entry=claims.entry_id,
        digest=digest_of(text),
        user_id=claims.user_id,
        kernel_id=claims.kernel_id,
        generation=claims.generation,
        service=claims.service,
        port=claims.port,
        host=claims.host,
        login=claims.credential.login,
        token=claims.credential.token,
        key_pair=claims.credential.key_pair,
        created_at=now,
        expires_at=now + LIFETIME,
    )
