"""Addresses of runs of code and of the files of a session."""

from django.urls import path

from backendai.api.views import execute, runs

_SESSION = "sessions/<uuid:session_id>/"
urlpatterns = [
    path(f"{_SESSION}runs/", runs.RunList.as_view(), name="runs"),
    path(f"{_SESSION}runs/<str:run_id>/", runs.RunDetail.as_view(), name="run"),
    path(f"{_SESSION}runs/<str:run_id>/input/", runs.RunAnswer.as_view(), name="run-input"),
    path(f"{_SESSION}runs/<str:run_id>/interrupt/", runs.RunInterrupt.as_view(), name="run-interrupt"),
    path(f"{_SESSION}contexts/", runs.ContextList.as_view(), name="contexts"),
    path(f"{_SESSION}contexts/<str:context>/", runs.ContextDetail.as_view(), name="context"),
    path(f"{_SESSION}contexts/<str:context>/restart/", runs.ContextRestart.as_view(), name="context-restart"),
    path(f"{_SESSION}complete/", runs.Completion.as_view(), name="complete"),
    path(f"{_SESSION}execute/", execute.Execute.as_view(), name="execute"),
    path(f"{_SESSION}files/", execute.SessionFiles.as_view(), name="session-files"),
    path(f"{_SESSION}files/<path:path>", execute.SessionFile.as_view(), name="session-file"),
]
