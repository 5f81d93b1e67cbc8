"""The user's second factors, provider's account, and signed-in browsers."""

from __future__ import annotations

from typing import Any, cast

from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.views import DownloadRecoveryCodesView, GenerateRecoveryCodesView, ViewRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.mfa.webauthn.views import AddWebAuthnView, EditWebAuthnView, RemoveWebAuthnView
from allauth.socialaccount.models import SocialAccount
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.forms import Form, ValidationError
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from backendai.base.texts.translation import ngettext
from backendai.domain.accounts.models import Login, User
from backendai.domain.accounts.sign_in.adapters import PortalFactors
from backendai.domain.accounts.sign_in.revocation import end_credentials
from backendai.domain.accounts.sign_in.second_factors import is_required_of, spend_code
from backendai.domain.accounts.sign_in.sign_ins import login_moved
from backendai.domain.activity.services import audit
from backendai.portal.web.account.menu import account_page
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.sign_in.pages import entrance

_SECURITY = reverse_lazy("mfa_index")


@signed_in("GET")
def security(request: PageRequest) -> HttpResponse:
    """Show the user's second factors and logins."""
    factors = list(Authenticator.objects.filter(user=request.user).order_by("created_at"))
    codes = next((one.wrap() for one in factors if one.type == "recovery_codes"), None)
    context = {
        "app": next((one for one in factors if one.type == "totp"), None),
        "passkey_list": [(one, one.wrap()) for one in factors if one.type == "webauthn"],
        "codes": codes,
        "codes_left": len(codes.get_unused_codes()) if codes else 0,
        "needs_factor": is_required_of(request.user) and not any(one.type != "recovery_codes" for one in factors),
        "identities": SocialAccount.objects.filter(user=request.user),
        "logins": Login.objects.filter(user=request.user),
        "here": request.session.session_key,
        **entrance(request),
    }
    return account_page(request, "mfa_index", context)


@signed_in("POST")
def sign_out_elsewhere(request: PageRequest) -> HttpResponse:
    """End all logins of the user except this one."""
    key = request.session.session_key
    with transaction.atomic():
        ended = end_credentials(request.user, now=timezone.now(), tokens=False, but=key or "")
        audit(request.user.pk, "user.sign-out-elsewhere", "user", [request.user.pk], ended=ended)
    update_session_auth_hash(request, request.user)
    login_moved(key, request)
    text = ngettext("Signed out in %(number)s other browser.", "Signed out in %(number)s other browsers.", ended)
    messages.success(request, text % {"number": ended})
    return redirect("mfa_index")


@method_decorator(never_cache, name="dispatch")
@method_decorator(login_required, name="dispatch")
class AddApp(ActivateTOTPView):
    """Adds an app that shows codes as second factor."""

    template_name = "mfa/totp/activate_form.html"

    def form_valid(self, form: Form) -> HttpResponse:
        """Add the app. Marks the code as used, so that it cannot also sign the user in."""
        answer: HttpResponse = super().form_valid(form)
        spend_code(cast(User, self.request.user), form.cleaned_data["code"])
        return answer


class _OnlyWhenThere:
    """A mixin that redirects to the security page if there is nothing to show."""

    def dispatch(self, request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Serve the page, or redirect instead of 404."""
        try:
            answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        except Http404:
            return redirect(str(_SECURITY))
        return answer


@method_decorator(never_cache, name="dispatch")
class RemoveApp(_OnlyWhenThere, DeactivateTOTPView):
    """Removes the app that shows codes."""

    template_name = "mfa/totp/deactivate_form.html"


@method_decorator(never_cache, name="dispatch")
@method_decorator(login_required, name="dispatch")
class AddPasskey(AddWebAuthnView):
    """Adds a passkey."""

    template_name = "mfa/webauthn/add_form.html"


@method_decorator(never_cache, name="dispatch")
@method_decorator(login_required, name="dispatch")
class RenamePasskey(EditWebAuthnView):
    """Renames a passkey."""

    template_name = "mfa/webauthn/edit_form.html"
    success_url = _SECURITY


@method_decorator(never_cache, name="dispatch")
@method_decorator(login_required, name="dispatch")
class RemovePasskey(RemoveWebAuthnView):
    """Removes a passkey, unless it is the last factor of a user who must have one."""

    template_name = "mfa/webauthn/authenticator_confirm_delete.html"
    success_url = _SECURITY

    def form_valid(self, form: Form) -> HttpResponse:
        """Remove the passkey, or show the error on the security page."""
        if not PortalFactors().can_delete_authenticator(self.object):
            error = PortalFactors().validation_error("cannot_delete_authenticator")
            assert isinstance(error, ValidationError)
            messages.error(self.request, error.messages[0])
            return redirect(str(_SECURITY))
        answer: HttpResponse = super().form_valid(form)
        return answer


@method_decorator(never_cache, name="dispatch")
class Codes(_OnlyWhenThere, ViewRecoveryCodesView):
    """Shows the recovery codes."""

    template_name = "mfa/recovery_codes/index.html"


@method_decorator(never_cache, name="dispatch")
@method_decorator(login_required, name="dispatch")
class NewCodes(GenerateRecoveryCodesView):
    """Renews the recovery codes."""

    template_name = "mfa/recovery_codes/generate.html"


class CodesFile(_OnlyWhenThere, DownloadRecoveryCodesView):
    """Sends the recovery codes as a file."""

    template_name = "mfa/recovery_codes/download.txt"
