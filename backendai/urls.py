"""The front door: which room answers under which path."""

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path

# The administration has no door of its own: anyone who is not signed in goes to the portal's.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

handler500 = "backendai.portal.http.database_away.answer_failure"
urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("backendai.portal.api.urls")),
    path("node/v1/", include("backendai.portal.agents.urls")),
    path("manage/", include("backendai.portal.web.admin.urls")),
    path("", include("backendai.portal.compat.urls")),
    path("", include("backendai.portal.http.urls")),
    path("", include("backendai.portal.web.urls")),
    path("", include("backendai.portal.web.sign_in.urls")),
]
