"""Addresses of templates."""

from django.urls import path

from backendai.portal.api.templates import versions as template_versions
from backendai.portal.api.templates import views as templates

urlpatterns = [
    path("", templates.TemplateList.as_view(), name="templates"),
    path("<uuid:template_id>/", templates.TemplateDetail.as_view(), name="template"),
    path("<uuid:template_id>/activate/", template_versions.TemplateActivate.as_view(), name="template-activate"),
    path("<uuid:template_id>/render/", template_versions.TemplateRender.as_view(), name="template-render"),
    path("<uuid:template_id>/versions/", template_versions.TemplateVersions.as_view(), name="template-versions"),
    path(
        "<uuid:template_id>/versions/<int:number>/",
        template_versions.TemplateVersionDetail.as_view(),
        name="template-version",
    ),
]
