"""Addresses of the pages of runs, below ``/runs/``."""

from django.urls import path

from backendai.portal.web.pipelines import changes, pages

urlpatterns = [
    path("", pages.runs, name="runs"),
    path("new/", changes.create, name="run_new"),
    path("<uuid:run_id>/", pages.run, name="run"),
    path("<uuid:run_id>/board/", pages.board, name="run_board"),
    path("<uuid:run_id>/failures/", pages.failures, name="run_failures"),
    path("<uuid:run_id>/compare/", pages.compare, name="run_compare"),
    path("<uuid:run_id>/copy/", changes.copy, name="run_copy"),
    path("<uuid:run_id>/cancel/", changes.cancel, name="run_cancel"),
    path("<uuid:run_id>/pause/", changes.pause, name="run_pause"),
    path("<uuid:run_id>/resume/", changes.resume, name="run_resume"),
    path("<uuid:run_id>/at-once/", changes.at_once, name="run_at_once"),
    path("<uuid:run_id>/retry/", changes.retry, name="run_retry"),
]
