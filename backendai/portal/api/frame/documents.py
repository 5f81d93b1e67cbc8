"""The API's OpenAPI document, and the answer for unknown addresses."""

from __future__ import annotations

import threading
from typing import Any

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import get_language, override
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backendai.domain.accounts.scopes import Scope

_made: dict[tuple[str, str], str | bytes] = {}
_making = threading.Lock()


class Schema(SpectacularAPIView):
    """The OpenAPI 3 schema, for everybody: it is public in docs/openapi.yaml.

    A process makes it once for each format and language: it takes a second of a processor, and 150 requests at once
    kept the portal from everybody for minutes.
    """

    permission_classes = [AllowAny]

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return this document, as YAML or JSON."""
        renderer, language = request.accepted_renderer, request.query_params.get("lang") or get_language()
        if language not in dict(settings.LANGUAGES):
            language = settings.LANGUAGE_CODE
        key = (renderer.media_type, language)
        with _making:
            if key not in _made:
                with override(language):
                    _made[key] = renderer.render(super().get(request, *args, **kwargs).data, renderer.media_type, {})
        kind = "json" if "json" in renderer.media_type else "yaml"
        name = {"Content-Disposition": f'inline; filename="schema.{kind}"'}
        return HttpResponse(_made[key], content_type=f"{renderer.media_type}; charset=utf-8", headers=name)


@method_decorator(login_required, name="dispatch")
@method_decorator(csp_update({"style-src": [UNSAFE_INLINE]}), name="dispatch")  # the page styles itself inline
class Documents(SpectacularSwaggerSplitView):
    """The API documentation, to read and try."""

    permission_classes = [IsAuthenticated]
    url_name = "api:schema"


@extend_schema(exclude=True)
class UnknownAddress(APIView):
    """Answers all other addresses with a problem document.

    A redirect instead would lose the body of a script's request.
    """

    token_scopes = (Scope.READ,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise 404 after authentication."""
        super().initial(request, *args, **kwargs)
        raise Http404

    def get(self, request: Request, **_: Any) -> Response:
        """Never reached: ``initial`` has raised 404."""
        raise Http404
