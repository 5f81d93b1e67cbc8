"""Who sends a request, by bearer token or signature, what they may do, and how often.

The framework's own class handles the login session (with CSRF).
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from typing import Any, cast

from django.http import HttpRequest
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import APIException, AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import AccessToken, KeyPair, User
from backendai.domain.accounts.rates import check_rates, check_stranger_rate
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services import token_of
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.accounts.sign_in.signatures import SCHEME, SignatureRefused, Signed, signer_of
from backendai.portal.api.frame.streamed_body import StreamedBody


class ScopeMissing(APIException):
    """The token is valid, but lacks the scope for this request."""

    status_code = HTTPStatus.FORBIDDEN
    default_code = "token-scope"


def user_of(request: Request) -> User:
    """Return the user of a request to a view for signed-in people only."""
    return cast(User, request.user)


def superadmin_of(request: Request) -> User:
    """Return the superadmin of a request. Raises NotFound for other users."""
    if not user_of(request).is_superadmin:
        raise NotFound("Not found, or you have no access.")
    return user_of(request)


def signing_pair(request: Request) -> KeyPair | None:
    """Return the key pair that signed the request, or None."""
    return request.auth if isinstance(request.auth, KeyPair) else None


def asking_token(request: Request) -> AccessToken | None:
    """Return the bearer token of the request, or None."""
    return request.auth if isinstance(request.auth, AccessToken) else None


def credential_of(request: Request) -> Credential | None:
    """Return the credential of the request, to be checked again later, or None if unknown."""
    if token := asking_token(request):
        return Credential(token=token.digest)
    if pair := signing_pair(request):
        return Credential(key_pair=pair.pk)
    return Credential(login=request.session.session_key) if request.session.session_key else None


class BearerAuthentication(BaseAuthentication):
    """``Authorization: Bearer <token>``.

    An invalid token is rejected, also beside a valid sign-in. Changing requests need the scopes in the view's
    ``token_scopes``; a view without them needs all scopes.
    """

    def authenticate(self, request: Request) -> tuple[User, AccessToken] | None:
        """Return the user and the token, or None without a bearer token in the header."""
        kind, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            return None
        token = token_of(text.strip())
        if token is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.", code="invalid-token")
        needed = _needed(request)
        if not token.allows(needed):
            missing = ", ".join(sorted(set(needed) - set(token.scopes)))
            raise ScopeMissing(f"This token may not do that: it lacks the scope {missing}.")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge, which turns a refusal into 401 instead of 403."""
        return 'Bearer realm="api"'


class SignatureAuthentication(BaseAuthentication):
    """``Authorization: BackendAI signMethod=HMAC-SHA256, credential=<access key>:<signature>``."""

    def authenticate(self, request: Request) -> tuple[User, KeyPair] | None:
        """Return the user and the key pair, or None without a signature in the header."""
        kind, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if kind.lower() != SCHEME.lower():
            return None
        try:
            body = self.signed_body(request._request)
            pair = signer_of(_signed(request, body), text.strip(), now=timezone.now())
        except SignatureRefused as error:
            raise AuthenticationFailed(error.message, code=error.code) from error
        return pair.user, pair

    def signed_body(self, plain: HttpRequest) -> bytes:
        """Return the body that the signature covers. Raises SignatureRefused."""
        return _body_of(plain)

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of the header ``WWW-Authenticate``."""
        return SCHEME


class SuperadminsWrite(IsAuthenticated):
    """Signed-in users read what is visible to them; only superadmins change it."""

    message = "Only superadmins may do this."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether the request is allowed."""
        may_read = super().has_permission(request, view)
        return may_read and (request.method in SAFE_METHODS or getattr(request.user, "is_superadmin", False))


class PersonalRate(BaseThrottle):
    """Counts the request for its user and key pair, or for a stranger's address.

    A POST to a view with ``launches`` also counts as a launch.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Return True. Raises TooFast with the time until the next try."""
        if isinstance(request.user, User):
            launches = request.method == "POST" and getattr(view, "launches", False)
            check_rates(request.user, now=timezone.now(), key_pair=signing_pair(request), launches=launches)
        else:
            check_stranger_rate(request.META.get("REMOTE_ADDR", ""), now=timezone.now())
        return True


def _needed(request: Request) -> Collection[str]:
    if request.method in SAFE_METHODS:
        return (Scope.READ,)
    view: Any = (request.parser_context or {}).get("view")
    needed: Collection[str] | None = getattr(view, "token_scopes", None)
    return tuple(Scope) if needed is None else needed


def _signed(request: Request, body: bytes) -> Signed:
    plain, headers = request._request, request.headers
    return Signed(
        method=plain.method or "",
        path=plain.get_full_path(),
        host=plain.META.get("HTTP_HOST", ""),
        date=headers.get("X-BackendAI-Date") or headers.get("Date", ""),
        content_type=plain.META.get("CONTENT_TYPE", ""),
        version=headers.get("X-BackendAI-Version", ""),
        body=body,
    )


def _body_of(plain: Any) -> bytes:
    """Return the signed body. Raises SignatureRefused where it is read as it arrives, as nobody knows its end yet."""
    if not isinstance(plain._stream, StreamedBody):
        return cast(bytes, plain.body)
    if plain.META.get("CONTENT_LENGTH") not in (None, "", "0") or plain.META.get("HTTP_TRANSFER_ENCODING"):
        raise SignatureRefused(
            "A signature cannot cover the body of this request, which is written while it arrives. Send it with an "
            "access token: Authorization: Bearer TOKEN.",
            code="body-not-signed",
        )
    return b""
