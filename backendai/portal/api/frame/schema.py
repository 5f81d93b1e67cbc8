"""Describes bearer tokens and signatures in the OpenAPI document, and writes its messages as YAML."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from yaml.representer import SafeRepresenter

from backendai.base.core.messages import Message

# Help texts of models are messages. YAML represents strings only, and no kind of them.
SafeRepresenter.add_multi_representer(Message, lambda dumper, text: dumper.represent_str(str.__str__(text)))


class BearerScheme(OpenApiAuthenticationExtension):
    """Describes ``Authorization: Bearer <token>``."""

    target_class = "backendai.portal.api.frame.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme object."""
        return {"type": "http", "scheme": "bearer"}


class SignatureScheme(OpenApiAuthenticationExtension):
    """Describes ``Authorization: BackendAI signMethod=HMAC-SHA256, credential=<access key>:<signature>``."""

    target_class = "backendai.portal.api.frame.authentication.SignatureAuthentication"
    name = "signature"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme object."""
        return {"type": "apiKey", "in": "header", "name": "Authorization", "description": "See docs/rest.md."}
