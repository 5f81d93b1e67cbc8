"""One's own account with its access tokens."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from backendai.accounts.models import AccessToken, KeyPair
from backendai.accounts.roles import chooses_members
from backendai.accounts.services import create_token, revoke_token
from backendai.accounts.sign_ins import login_moved
from backendai.activity.services import audit
from backendai.core.errors import UserError
from backendai.web.forms import PasswordForm, TokenForm
from backendai.web.requests import PageRequest


@require_safe
@never_cache
@login_required
def account(request: PageRequest) -> HttpResponse:
    """Show who one is, and one's access tokens."""
    return _page(request)


@require_POST
@never_cache
@login_required
def password(request: PageRequest) -> HttpResponse:
    """Change one's password; every other browser in which one is signed in is signed out by that."""
    form = PasswordForm(request.user, request.POST)
    if not form.is_valid():
        return _page(request, password_form=form, status=422)
    with transaction.atomic():
        form.save()
        audit(request.user.pk, "user.change-password", "user", [request.user.pk])
    key = request.session.session_key
    update_session_auth_hash(request, request.user)
    login_moved(key, request)
    messages.success(request, "Your password is changed. Everywhere else you are signed out; access tokens stay valid.")
    return redirect("web:account")


@require_POST
@never_cache
@login_required
def tokens(request: PageRequest) -> HttpResponse:
    """Make an access token and show its text, this once: it is not stored, so the page is not a redirect."""
    form = TokenForm(request.POST)
    if form.is_valid():
        try:
            name, scopes = form.cleaned_data["name"], form.cleaned_data["scopes"]
            _, text = create_token(request.user, name, scopes=scopes, expires_at=form.expires_at())
        except UserError as error:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        else:
            return _page(request, new_token=text)
    return _page(request, token_form=form, status=422)


@require_POST
@login_required
def token_revoke(request: PageRequest, token_id: UUID) -> HttpResponse:
    """Delete one of one's own tokens."""
    try:
        revoke_token(request.user, token_id)
    except UserError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, "The token is revoked; whatever used it is refused from now on.")
    return redirect("web:account")


def _page(
    request: PageRequest,
    *,
    token_form: TokenForm | None = None,
    password_form: PasswordForm | None = None,
    new_token: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "section": "account",
        "form": token_form or TokenForm(),
        "password_form": password_form or PasswordForm(request.user),
        "new_token": new_token,
        "tokens": AccessToken.objects.visible_to(request.user),
        "key_pairs": KeyPair.objects.filter(user=request.user),
        "chooses_members": chooses_members(request.user),
        "projects": request.user.projects.select_related("domain"),
    }
    return render(request, "web/account.html", context, status=status)
