"""Who may write what everybody may read."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request


class SuperadminsWrite(IsAuthenticated):
    """Anyone who is signed in looks at what they may see; superadmins alone change it."""

    message = "Only superadmins may do this."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether the request may go on to what it names."""
        may_read = super().has_permission(request, view)
        return may_read and (request.method in SAFE_METHODS or getattr(request.user, "is_superadmin", False))
