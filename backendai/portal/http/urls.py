"""Addresses of the health checks and of the metrics."""

from django.urls import path

from backendai.portal.http import health
from backendai.portal.http.metrics.page import metrics

urlpatterns = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", metrics, name="metrics"),
]
