"""Signing in, signing up, and repeated proofs of identity."""

from __future__ import annotations

import ipaddress
from typing import Any

from allauth.account.views import LoginView, ReauthenticateView
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.base.views import ReauthenticateView as CodeAgainView
from allauth.mfa.webauthn.views import LoginWebAuthnView, ReauthenticateWebAuthnView
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.services.create_user import sign_up as ask_for_account
from backendai.domain.accounts.sign_in.logins import begin_login
from backendai.domain.accounts.sign_in.sign_ins import expire_soon
from backendai.portal.web.sign_in.demo import ROLES
from backendai.portal.web.sign_in.forms import SignUpForm
from backendai.portal.web.sign_in.single_sign_on import is_set_up


def entrance(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the sign-in page: passkeys (if the address allows them), identity provider, and sign-up."""
    return {
        "passkeys": _may_have_passkeys(request),
        "provider": settings.OIDC_NAME if is_set_up() else "",
        "provider_id": settings.OIDC_PROVIDER_ID,
        "signup": settings.SIGNUP != "off",
    }


class Login(LoginView):
    """Signs in by e-mail address and password, or leads to another method."""

    template_name = "account/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), **entrance(self.request), "demo": ROLES}

    def get_template_names(self) -> list[str]:
        """Return the page of a demonstration in one: there nobody has a password."""
        return ["account/demo.html"] if settings.DEMO else [self.template_name]


class SecondStep(AuthenticateView):
    """Asks for the second factor."""

    template_name = "mfa/authenticate.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the page; offers passkeys only to users who have one."""
        found = {**super().get_context_data(**kwargs), **entrance(self.request)}
        kinds = set(self.stage.login.user.authenticator_set.values_list("type", flat=True))
        has = {"has_codes": bool(kinds - {"webauthn"}), "has_app": "totp" in kinds, "has_passkey": "webauthn" in kinds}
        return found | has


class PasskeyLogin(LoginWebAuthnView):
    """Signs in by a passkey."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the challenge for the passkey."""
        expire_soon(request)
        answer: HttpResponse = super().get(request, *args, **kwargs)
        return answer


class PasswordAgain(ReauthenticateView):
    """Asks for the password as a repeated proof of identity."""

    template_name = "account/reauthenticate.html"


class CodeAgain(CodeAgainView):
    """Asks for a code as a repeated proof of identity."""

    template_name = "mfa/reauthenticate.html"


class PasskeyAgain(ReauthenticateWebAuthnView):
    """Asks for a passkey as a repeated proof of identity."""

    template_name = "mfa/webauthn/reauthenticate.html"


@sensitive_post_parameters("password", "again")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    """Show the form for a new account; on POST create it, if the installation allows that.

    The answer is the same for an address with an account.
    """
    if settings.SIGNUP != "approval":
        raise Http404
    if request.user.is_authenticated:
        return redirect("web:sessions")
    form = SignUpForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        wait = begin_login("sign-up", request.META.get("REMOTE_ADDR", ""), now=timezone.now(), everywhere=False)
        if wait is None:
            found = form.cleaned_data
            ask_for_account(found["email"], found["password"], full_name=found["full_name"])
            messages.success(
                request, _("Thank you. You can sign in as soon as an administrator has approved your account.")
            )
            return redirect("web:login")
        form.add_error(
            None, _("Too many attempts. Try again in %(seconds)s seconds.") % {"seconds": f"{wait.total_seconds():.0f}"}
        )
    status = 422 if form.errors else 200
    return render(request, "account/signup.html", {"form": form}, status=status)


def _may_have_passkeys(request: HttpRequest) -> bool:
    """Return whether this address allows passkeys: they need a host name and a secure page."""
    host = request.get_host().rpartition(":")[0] or request.get_host()
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return request.is_secure() or host == "localhost" or host.endswith(".localhost")
    return False
