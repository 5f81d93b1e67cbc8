"""Answers in YAML, requested by ``?format=yaml`` or the header Accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import BaseRenderer

from backendai.base.core.written_documents import written


class YAMLRenderer(BaseRenderer):
    """Renders a text unchanged, and other data in block style."""

    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """Return the answer as bytes of YAML."""
        text = data if isinstance(data, str) else written(data) if isinstance(data, Mapping) else ""
        return text.encode()
