"""The front door: which room answers under which path."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("backendai.api.urls")),
    path("node/v1/", include("backendai.controller.urls")),
    path("manage/", include("backendai.web.panel.urls")),
    path("", include("backendai.ops.urls")),
    path("", include("backendai.web.urls")),
]
