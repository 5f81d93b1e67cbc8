"""Signing in, signing up, and proving again who one is."""

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

from backendai.accounts.logins import begin_login
from backendai.accounts.services.sign_up import sign_up as ask_for_account
from backendai.accounts.sign_ins import expire_soon
from backendai.texts.translation import gettext as _
from backendai.web.sign_in_forms import SignUpForm
from backendai.web.single_sign_on import is_set_up


def entrance(request: HttpRequest) -> dict[str, Any]:
    """Return what there is beside the password: passkeys, where the address allows them; a provider of identities;
    asking for an account."""
    return {
        "passkeys": _may_have_passkeys(request),
        "provider": settings.OIDC_NAME if is_set_up() else "",
        "provider_id": settings.OIDC_PROVIDER_ID,
        "signup": settings.SIGNUP != "off",
    }


class Login(LoginView):
    """Sign in by e-mail address and password, or go on to another way."""

    template_name = "account/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what the page shows."""
        return {**super().get_context_data(**kwargs), **entrance(self.request)}


class SecondStep(AuthenticateView):
    """The second factor, after the first."""

    template_name = "mfa/authenticate.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what the page shows; passkeys only to those who have one."""
        found = {**super().get_context_data(**kwargs), **entrance(self.request)}
        kinds = set(self.stage.login.user.authenticator_set.values_list("type", flat=True))
        has = {"has_codes": bool(kinds - {"webauthn"}), "has_app": "totp" in kinds, "has_passkey": "webauthn" in kinds}
        return found | has


class PasskeyLogin(LoginWebAuthnView):
    """Ask a passkey, and sign in by what it says."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the question."""
        expire_soon(request)
        answer: HttpResponse = super().get(request, *args, **kwargs)
        return answer


class PasswordAgain(ReauthenticateView):
    """Prove by password that it is still oneself."""

    template_name = "account/reauthenticate.html"


class CodeAgain(CodeAgainView):
    """Prove it by a code."""

    template_name = "mfa/reauthenticate.html"


class PasskeyAgain(ReauthenticateWebAuthnView):
    """Prove it by a passkey."""

    template_name = "mfa/webauthn/reauthenticate.html"


@sensitive_post_parameters("password", "again")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    """Ask for an account, where the installation lets people. The answer is the same for an address that has one."""
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
    """Passkeys belong to a name, and browsers give them to secure pages only."""
    host = request.get_host().rpartition(":")[0] or request.get_host()
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return request.is_secure() or host == "localhost" or host.endswith(".localhost")
    return False
