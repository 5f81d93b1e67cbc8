"""Addresses of the health checks."""

from django.urls import path

from backendai.ops import health

urlpatterns = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
]
