"""Signing in to a demonstration: as one of four people, without a password."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User


@dataclass(frozen=True, slots=True)
class Role:
    """A person as whom a visitor signs in."""

    email: str
    title: Message
    about: Message


# By the value of the button.
ROLES = {
    "student": Role("mina@demo.invalid", Message("Student"), Message("Two sessions at once, in a class.")),
    "researcher": Role("jonas@demo.invalid", Message("Researcher"), Message("Trains on GPUs and serves a model.")),
    "project-admin": Role("amara@demo.invalid", Message("Project administrator"), Message("Leads a project.")),
    "superadmin": Role("sofia@demo.invalid", Message("Superadmin"), Message("Sees and changes everything.")),
}


@require_POST
def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in as the person of the button. Raises Http404 outside of a demonstration."""
    role = request.POST.get("role", "")
    if not settings.DEMO or role not in ROLES:
        raise Http404
    user = get_object_or_404(User, email=ROLES[role].email, is_active=True)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect(settings.LOGIN_REDIRECT_URL if role != "superadmin" else "web:dashboard")
