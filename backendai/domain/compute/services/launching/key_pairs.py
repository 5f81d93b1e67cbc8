"""Deletes key pairs to which no live session counts."""

from __future__ import annotations

from django.db import transaction

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.key_pairs import own_key_pair, remove_key_pair
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import LIVE


def delete_key_pair(user: User, access_key: str) -> None:
    """Delete one of the user's key pairs. Raises NotFound; Conflict for the main key pair, or while live sessions count
    to it."""
    with transaction.atomic():
        own_key_pair(user, access_key)
        number = ComputeSession.objects.filter(access_key=access_key, status__in=LIVE).count()
        if number:
            raise Conflict(
                "Active sessions of this key pair: {sessions}. Terminate them first, or deactivate the key "
                "pair instead.",
                code="key-pair-in-use",
                sessions=number,
            )
        remove_key_pair(user, access_key)
