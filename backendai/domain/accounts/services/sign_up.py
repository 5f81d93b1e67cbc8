"""Signs up new users."""

from __future__ import annotations

from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction

from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.activity.services import audit


def sign_up(email: str, password: str, *, full_name: str = "") -> User | None:
    """Create an inactive account without domain or project; an administrator must activate it.

    Returns None if the address is taken; that takes as long, and changes nothing.
    """
    email = email.strip().lower()
    digest = make_password(password)
    try:
        with transaction.atomic():
            user: User = User.objects.create(email=email, password=digest, full_name=full_name.strip(), is_active=False)
            KeyPair.objects.create(user=user)
            audit(None, "user.sign-up", "user", [user.pk], email=email)
    except IntegrityError:
        return None
    return user
