"""A permission for objects that everybody reads and superadmins change."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request


class SuperadminsWrite(IsAuthenticated):
    """Signed-in users read what is visible to them; only superadmins change it."""

    message = "Only superadmins may do this."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether the request is allowed."""
        may_read = super().has_permission(request, view)
        return may_read and (request.method in SAFE_METHODS or getattr(request.user, "is_superadmin", False))
