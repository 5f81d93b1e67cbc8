"""The SSH keys, dotfiles and bootstrap script for the user's sessions."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from backendai.base.core.errors import NotFound, UserError
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import BootstrapScript, Dotfile, SshKey
from backendai.domain.accounts.services.environments import (
    MOST_BYTES,
    MOST_DOTFILES,
    MOST_SSH_KEYS,
    add_ssh_key,
    dotfiles_of,
    remove_dotfile,
    remove_ssh_key,
    save_dotfile,
    set_bootstrap_script,
    size_of,
)
from backendai.gates.gateways.ssh_access import config_of, site_for
from backendai.portal.web.account.credential_forms import DotfileForm, ScriptForm, SshKeyForm
from backendai.portal.web.account.menu import account_page, blame
from backendai.portal.web.frame.requests import PageRequest, signed_in

_SCRIPT_IDS = "script_%s"  # beside a form with a field of the same name


@signed_in("GET", "POST")
def ssh_keys(request: PageRequest) -> HttpResponse:
    """Show the user's SSH keys; on POST register one."""
    form = SshKeyForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            told = form.cleaned_data
            add_ssh_key(request.user, told["public_key"], name=told["name"], proof=told["proof"])
            return redirect("web:ssh_keys")
        except UserError as error:
            blame(form, error)
    keys = SshKey.objects.visible_to(request.user)
    context = {"form": form, "keys": keys, "most": MOST_SSH_KEYS}
    if site := site_for(request.get_host()):
        context |= {"site": site, "config": config_of(request.user, site)}
    return account_page(request, "web:ssh_keys", context, status=422 if form.is_bound else 200)


@signed_in("POST")
def ssh_key_delete(request: PageRequest, ssh_key_id: UUID) -> HttpResponse:
    """Delete an SSH key of the user."""
    try:
        remove_ssh_key(request.user, ssh_key_id)
    except NotFound as error:
        raise Http404 from error
    return redirect("web:ssh_keys")


@signed_in("GET", "POST")
def environment(request: PageRequest) -> HttpResponse:
    """Show the user's dotfiles and script, with the file named by ``edit`` in the form; on POST save a file."""
    form = DotfileForm(request.POST) if request.method == "POST" else DotfileForm(initial=_edited(request))
    if request.method == "POST" and form.is_valid():
        try:
            save_dotfile(request.user, request.user, **form.cleaned_data)
            messages.success(
                request,
                _("Saved %(path)s. New sessions will have it.") % {"path": form.cleaned_data["path"]},
            )
            return redirect("web:environment")
        except UserError as error:
            blame(form, error)
    return _page(request, form, _script_form(request), status=422 if form.is_bound else 200)


@signed_in("POST")
def dotfile_delete(request: PageRequest, dotfile_id: UUID) -> HttpResponse:
    """Delete a dotfile of the user."""
    try:
        remove_dotfile(request.user, request.user, dotfile_id)
    except NotFound as error:
        raise Http404 from error
    return redirect("web:environment")


@signed_in("POST")
def script(request: PageRequest) -> HttpResponse:
    """Save the user's bootstrap script; an empty one deletes it."""
    form = ScriptForm(request.POST, auto_id=_SCRIPT_IDS)
    if form.is_valid():
        try:
            set_bootstrap_script(request.user, form.cleaned_data["content"])
            messages.success(request, _("The bootstrap script is saved."))
            return redirect("web:environment")
        except UserError as error:
            blame(form, error)
    return _page(request, DotfileForm(), form, status=422)


def _page(request: PageRequest, form: DotfileForm, script_form: ScriptForm, *, status: int) -> HttpResponse:
    files: list[Dotfile] = list(dotfiles_of(request.user))
    context = {
        "form": form,
        "script_form": script_form,
        "files": files,
        "used": sum(size_of(file.path, file.content) for file in files),
        "most_bytes": MOST_BYTES,
        "most_files": MOST_DOTFILES,
    }
    return account_page(request, "web:environment", context, status=status)


def _edited(request: PageRequest) -> dict[str, str]:
    wanted = request.GET.get("edit", "")[:255]
    file = dotfiles_of(request.user).filter(path=wanted).first() if wanted else None
    return {"path": file.path, "permission": file.permission, "content": file.content} if file else {}


def _script_form(request: PageRequest) -> ScriptForm:
    kept = BootstrapScript.objects.filter(user=request.user).first()
    return ScriptForm(initial={"content": kept.content if kept else ""}, auto_id=_SCRIPT_IDS)
