"""The user's own access tokens and key pairs."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from backendai.base.core.errors import NotFound, UserError
from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import AccessToken, KeyPair
from backendai.domain.accounts.services import create_token, revoke_token
from backendai.domain.accounts.services.key_pairs import change_key_pair, create_key_pair, rotate_secret
from backendai.domain.compute.services.launching.key_pairs import delete_key_pair
from backendai.portal.web.account.command import has_command
from backendai.portal.web.account.credential_forms import KeyPairForm, TokenForm
from backendai.portal.web.account.menu import account_page, blame
from backendai.portal.web.frame.requests import PageRequest, signed_in


@signed_in("GET", "POST")
def tokens(request: PageRequest) -> HttpResponse:
    """Show the user's tokens; on POST create one and show its text once.

    The text is not stored, so no redirect follows.
    """
    form = TokenForm(request.POST or None)
    if request.method != "POST":
        return _tokens(request, form)
    if form.is_valid():
        try:
            name, scopes = form.cleaned_data["name"], form.cleaned_data["scopes"]
            _, text = create_token(request.user, name, scopes=scopes, expires_at=form.expires_at())
            return _tokens(request, TokenForm(), new_token=text)
        except UserError as error:
            blame(form, error)
    return _tokens(request, form, status=422)


@signed_in("POST")
def token_revoke(request: PageRequest, token_id: UUID) -> HttpResponse:
    """Revoke a token of the user."""
    try:
        revoke_token(request.user, token_id)
    except UserError as error:
        messages.error(request, in_words(error.message))
    else:
        messages.success(request, _("The token is revoked; programs that use it are refused from now on."))
    return redirect("web:tokens")


@signed_in("GET", "POST")
def key_pairs(request: PageRequest) -> HttpResponse:
    """Show the user's key pairs; on POST create one and show its secret once."""
    form = KeyPairForm(request.POST or None)
    if request.method != "POST":
        return _key_pairs(request, form)
    if form.is_valid():
        try:
            made = create_key_pair(request.user, form.cleaned_data["name"])
            return _key_pairs(request, KeyPairForm(), made=made)
        except UserError as error:
            blame(form, error)
    return _key_pairs(request, form, status=422)


@signed_in("POST")
def key_pair_rotate(request: PageRequest, access_key: str) -> HttpResponse:
    """Replace the secret of a key pair of the user, and show the new one once."""
    try:
        made = rotate_secret(request.user, access_key)
    except NotFound as error:
        raise Http404 from error
    return _key_pairs(request, KeyPairForm(), made=made)


@signed_in("POST")
def key_pair_change(request: PageRequest, access_key: str) -> HttpResponse:
    """Make a key pair of the user the main one, or activate, deactivate or delete it."""
    action = request.POST.get("action", "")
    try:
        if action == "delete":
            delete_key_pair(request.user, access_key)
        elif action == "main":
            change_key_pair(request.user, access_key, is_main=True)
        else:
            change_key_pair(request.user, access_key, is_active=action == "activate")
    except NotFound as error:
        raise Http404 from error
    except UserError as error:
        messages.error(request, in_words(error.message))
    return redirect("web:key_pairs")


def _tokens(request: PageRequest, form: TokenForm, *, new_token: str = "", status: int = 200) -> HttpResponse:
    tokens = AccessToken.objects.visible_to(request.user)
    context = {"form": form, "new_token": new_token, "tokens": tokens, "has_command": has_command()}
    return account_page(request, "web:tokens", context, status=status)


def _key_pairs(
    request: PageRequest, form: KeyPairForm, *, made: tuple[KeyPair, str] | None = None, status: int = 200
) -> HttpResponse:
    pairs = list(KeyPair.objects.visible_to(request.user).order_by("created_at"))
    active = sorted((pair for pair in pairs if pair.is_active), key=lambda pair: (not pair.is_main, pair.created_at))
    main = active[0].pk if active else None
    context = {"form": form, "made": made, "pairs": pairs, "main": main}
    return account_page(request, "web:key_pairs", context, status=status)
