"""Addresses of runs of code and of the files of a session."""

from django.urls import path

from backendai.portal.api.pipelines import runs
from backendai.portal.api.sessions import execute, home_files

_SESSION = "sessions/<uuid:session_id>/"
urlpatterns = [
    path(f"{_SESSION}runs/", runs.RunList.as_view(), name="runs"),
    path(f"{_SESSION}runs/<str:run_id>/", runs.RunDetail.as_view(), name="run"),
    path(f"{_SESSION}runs/<str:run_id>/code/", runs.RunCode.as_view(), name="run-code"),
    path(f"{_SESSION}runs/<str:run_id>/input/", runs.RunAnswer.as_view(), name="run-input"),
    path(f"{_SESSION}runs/<str:run_id>/interrupt/", runs.RunInterrupt.as_view(), name="run-interrupt"),
    path(f"{_SESSION}contexts/", runs.ContextList.as_view(), name="contexts"),
    path(f"{_SESSION}contexts/<str:context>/", runs.ContextDetail.as_view(), name="context"),
    path(f"{_SESSION}contexts/<str:context>/restart/", runs.ContextRestart.as_view(), name="context-restart"),
    path(f"{_SESSION}languages/", runs.LanguageList.as_view(), name="languages"),
    path(f"{_SESSION}complete/", runs.Completion.as_view(), name="complete"),
    path(f"{_SESSION}execute/", execute.Execute.as_view(), name="execute"),
    path(f"{_SESSION}entries/", home_files.HomeEntries.as_view(), name="session-entries"),
    path(f"{_SESSION}entry/", home_files.HomeEntry.as_view(), name="session-entry"),
    path(f"{_SESSION}search/", home_files.HomeSearch.as_view(), name="session-search"),
    path(f"{_SESSION}directories/", home_files.HomeDirectories.as_view(), name="session-directories"),
    path(f"{_SESSION}moves/", home_files.HomeMoves.as_view(), name="session-moves"),
    path(f"{_SESSION}deletions/", home_files.HomeDeletions.as_view(), name="session-deletions"),
    path(f"{_SESSION}archive/", home_files.HomeArchive.as_view(), name="session-archive"),
    path(f"{_SESSION}files/", execute.SessionFiles.as_view(), name="session-files"),
    path(f"{_SESSION}files/<path:path>", execute.SessionFile.as_view(), name="session-file"),
]
