"""Addresses of the pages of templates, below ``/templates/``."""

from django.urls import path

from backendai.portal.web.gallery import changes, pages, running, starting

urlpatterns = [
    path("", pages.templates, name="templates"),
    path("new/", changes.create, name="template_new"),
    path("<uuid:template_id>/", pages.template, name="template"),
    path("<uuid:template_id>/start/", starting.start, name="template_start"),
    path("<uuid:template_id>/run/", running.start, name="template_run"),
    path("<uuid:template_id>/publish/", changes.publish, name="template_publish"),
    path("<uuid:template_id>/change/", changes.change, name="template_change"),
    path("<uuid:template_id>/activate/", changes.activate, name="template_activate"),
    path("<uuid:template_id>/delete/", changes.delete, name="template_delete"),
]
