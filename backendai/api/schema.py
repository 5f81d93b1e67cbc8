"""Describes bearer tokens and signatures in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class BearerScheme(OpenApiAuthenticationExtension):
    """Describes ``Authorization: Bearer <token>``."""

    target_class = "backendai.api.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme object."""
        return {"type": "http", "scheme": "bearer"}


class SignatureScheme(OpenApiAuthenticationExtension):
    """Describes ``Authorization: BackendAI signMethod=HMAC-SHA256, credential=<access key>:<signature>``."""

    target_class = "backendai.api.authentication.SignatureAuthentication"
    name = "signature"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme object."""
        return {"type": "apiKey", "in": "header", "name": "Authorization", "description": "See docs/rest.md."}
