"""Addresses of the health checks."""

from django.urls import path

from backendai.portal.http import health

urlpatterns = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
]
