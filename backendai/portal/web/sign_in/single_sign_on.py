"""Signs users in by an identity provider (OpenID Connect), and updates their accounts from its claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.core.validators import validate_email
from django.db import transaction
from django.forms import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.claims import Place, create_from_claims, follow_claims, place_of
from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.revocation import end_credentials
from backendai.domain.accounts.sign_in.sign_ins import expire_soon
from backendai.domain.activity.services import audit

_UNREADABLE = (OAuth2Error, requests.RequestException, LookupError, TypeError, ValueError, AttributeError)


class PortalIdentities(DefaultSocialAccountAdapter):
    """Decides about each person whom the provider identifies, before allauth does."""

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Find or create the user, and grant the roles of their groups. A refused person sees the reason."""
        if sociallogin.state.get("process") != "login":
            raise _refusal(
                request, _("Accounts cannot be linked here. Sign out, and sign in with the identity provider.")
            )
        said = sociallogin.claims
        place = place_of(_groups_in(said), settings.OIDC_MAPPING)
        with transaction.atomic():
            if sociallogin.is_existing:
                _follow(sociallogin.user, place)
            elif place is not None:
                sociallogin.connect(request, _found_or_made(request, said, place))
        if place is None:
            text = _("None of your groups may use this platform. Ask its administrators which one you need.")
            raise _refusal(request, text)


class CheckingClient(OpenIDConnectOAuth2Adapter):
    """Validates the provider's claims more strictly than allauth.

    It verifies the signature, although the token came by a direct connection. All claims must be about the same person,
    as this provider named them before.
    """

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> SocialLogin:
        """Return the login with the person's ``claims``.

        Only the identity is stored; the other claims change, and are requested at every sign-in.
        """
        self.did_fetch_access_token = False  # else allauth skips the signature
        login = super().complete_login(request, app, token, **kwargs)
        signed, answer = login.account.extra_data["id_token"], login.account.extra_data.get("userinfo") or {}
        if answer and answer.get("sub") != signed["sub"]:
            raise OAuth2Error("the answer is about somebody else")
        known = SocialAccount.objects.filter(provider=login.account.provider, uid=login.account.uid).first()
        if known and known.extra_data["id_token"]["iss"] != signed["iss"]:
            raise OAuth2Error("another provider named this person")
        login.claims = signed | answer
        login.account.extra_data = {"id_token": {"sub": signed["sub"], "iss": signed["iss"]}}
        return login


@require_safe
@never_cache
def leave(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Redirect the browser to the provider."""
    expire_soon(request)
    return _serve(OAuth2LoginView, request, provider_id)


@require_safe
@never_cache
def come_back(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Validate the provider's answer, and sign the user in."""
    return _serve(OAuth2CallbackView, request, provider_id)


def is_set_up() -> bool:
    """Return whether an identity provider is configured."""
    return bool(settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"])


def _serve(view: Any, request: HttpRequest, provider_id: str) -> HttpResponse:
    if provider_id != settings.OIDC_PROVIDER_ID or not is_set_up():
        raise Http404
    try:
        answer: HttpResponse = view.adapter_view(CheckingClient(request, provider_id))(request)
    except _UNREADABLE:
        return _page(request, "", status=502)
    return answer


def _groups_in(said: Mapping[str, Any]) -> list[str]:
    groups = said.get(settings.OIDC_GROUP_CLAIM)
    found = groups if isinstance(groups, list) else [groups]
    return [group for group in found if isinstance(group, str)]


def _found_or_made(request: HttpRequest, said: Mapping[str, Any], place: Place) -> User:
    email = str(said.get("email") or "").strip().lower()
    try:
        validate_email(email)
    except ValidationError:
        raise _refusal(request, _("The identity provider did not send your e-mail address.")) from None
    user = User.objects.filter(email=email).first()
    if user is None:
        return _made(request, email, str(said.get("name") or ""), place)
    if not (settings.OIDC_LINK_BY_EMAIL and said.get("email_verified") is True):
        text = _("The account with your e-mail address is not linked to this identity. Ask an administrator.")
        raise _refusal(request, text)
    if not user.is_active:
        text = _("The account with your e-mail address is not active. Ask an administrator of this installation.")
        raise _refusal(request, text)
    _hand_over(user)
    audit(user.pk, "user.link-identity", "user", [user.pk], email=email, provider=settings.OIDC_NAME)
    _follow(user, place)
    return user


def _hand_over(user: User) -> None:
    """Delete the password, second factors and credentials of an account.

    Anybody may have created it with this unverified address, and must not sign in as its owner.
    """
    user.set_unusable_password()
    user.save(update_fields=["password"])
    Authenticator.objects.filter(user_id=user.pk).delete()
    end_credentials(user, now=timezone.now())


def _made(request: HttpRequest, email: str, name: str, place: Place) -> User:
    try:
        return create_from_claims(email, name, place, provider=settings.OIDC_NAME, now=timezone.now())
    except Conflict:  # the same person in another tab, a moment earlier
        raise _refusal(request, _("Your account was created just now. Sign in again.")) from None


def _follow(user: User, place: Place | None) -> None:
    if user.is_active:
        follow_claims(user, place, settings.OIDC_MAPPING, provider=settings.OIDC_NAME, now=timezone.now())


def _refusal(request: HttpRequest, reason: str) -> ImmediateHttpResponse:
    return ImmediateHttpResponse(_page(request, reason, status=403))


def _page(request: HttpRequest, reason: str, *, status: int) -> HttpResponse:
    return render(request, "socialaccount/authentication_error.html", {"reason": reason}, status=status)
