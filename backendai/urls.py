"""The front door: which room answers under which path."""

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path

# The administration has no door of its own: anyone who is not signed in goes to the portal's.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

handler500 = "backendai.ops.database_away.answer_failure"
urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("backendai.api.urls")),
    path("node/v1/", include("backendai.controller.urls")),
    path("manage/", include("backendai.web.panel.urls")),
    path("", include("backendai.ops.urls")),
    path("", include("backendai.web.urls")),
    path("", include("backendai.web.sign_in_urls")),
]
