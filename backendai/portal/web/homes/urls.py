"""Addresses of the pages of a session's home folder, below ``/sessions/ID/home/``."""

from django.urls import path

from backendai.portal.web.homes import changes, pages

urlpatterns = [
    path("", pages.home, name="home"),
    path("file/", pages.file, name="home_file"),
    path("lead/", pages.lead, name="home_lead"),
    path("directories/", changes.make_directory, name="home_make_directory"),
    path("rename/", changes.rename, name="home_rename"),
    path("move/", changes.move, name="home_move"),
    path("delete/", changes.delete, name="home_delete"),
]
