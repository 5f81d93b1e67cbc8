"""Addresses of the administration pages, each named as its entry of the menu."""

from django.urls import path

from backendai.web.panel import audit, domains, start

app_name = "manage"
urlpatterns = [
    path("", start.start, name="start"),
    path("domains/", domains.DomainList.as_view(), name="domains"),
    path("domains/new/", domains.DomainPage.as_view(), name="domain-new"),
    path("domains/<int:pk>/", domains.DomainPage.as_view(), name="domain"),
    path("audit/", audit.AuditList.as_view(), name="audit"),
]
