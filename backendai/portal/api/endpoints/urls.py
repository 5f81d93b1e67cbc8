"""Addresses of inference endpoints."""

from django.urls import path

from backendai.portal.api.endpoints import access as endpoint_access
from backendai.portal.api.endpoints import views as endpoints

_ONE = "endpoints/<uuid:endpoint_id>/"
urlpatterns = [
    path("endpoints/", endpoints.EndpointList.as_view(), name="endpoints"),
    path("endpoint-preview/", endpoints.EndpointPreview.as_view(), name="endpoint-preview"),
    path(_ONE, endpoints.EndpointDetail.as_view(), name="endpoint"),
    path(f"{_ONE}start/", endpoints.EndpointStart.as_view(), name="endpoint-start"),
    path(f"{_ONE}stop/", endpoints.EndpointStop.as_view(), name="endpoint-stop"),
    path(f"{_ONE}retry/", endpoints.EndpointRetry.as_view(), name="endpoint-retry"),
    path(f"{_ONE}revisions/", endpoints.EndpointRevisions.as_view(), name="endpoint-revisions"),
    path(f"{_ONE}roll-back/", endpoints.EndpointRollBack.as_view(), name="endpoint-roll-back"),
    path(f"{_ONE}replicas/", endpoints.EndpointReplicas.as_view(), name="endpoint-replicas"),
    path(f"{_ONE}history/", endpoints.EndpointHistory.as_view(), name="endpoint-history"),
    path(f"{_ONE}explain/", endpoints.EndpointExplanation.as_view(), name="endpoint-explain"),
    path(f"{_ONE}metrics/", endpoints.EndpointMetrics.as_view(), name="endpoint-metrics"),
    path(f"{_ONE}rules/", endpoint_access.EndpointRules.as_view(), name="endpoint-rules"),
    path(f"{_ONE}tokens/", endpoint_access.EndpointTokens.as_view(), name="endpoint-tokens"),
    path(
        f"{_ONE}tokens/<uuid:endpoint_token_id>/",
        endpoint_access.EndpointTokenDetail.as_view(),
        name="endpoint-token",
    ),
]
