"""Addresses of runs of arrays and pipelines."""

from django.urls import path

from backendai.portal.api.frame import schema
from backendai.portal.api.pipelines import actions as pipeline_actions
from backendai.portal.api.pipelines import views as pipelines

_ONE = "runs/<uuid:run_id>/"
urlpatterns = [
    path("runs/", pipelines.BatchRunList.as_view(), name="batch-runs"),
    path("run-preview/", pipelines.BatchRunPreview.as_view(), name="run-preview"),
    path("run-schema/", schema.RunSchema.as_view(), name="run-schema"),
    path("template-schema/", schema.TemplateSchema.as_view(), name="template-schema"),
    path(_ONE, pipelines.BatchRunDetail.as_view(), name="batch-run"),
    path(f"{_ONE}tasks/", pipelines.BatchRunTasks.as_view(), name="batch-run-tasks"),
    path(f"{_ONE}failures/", pipelines.BatchRunFailures.as_view(), name="batch-run-failures"),
    path(f"{_ONE}explain/", pipelines.BatchRunExplanation.as_view(), name="batch-run-explain"),
    path(f"{_ONE}compare/", pipelines.BatchRunComparison.as_view(), name="batch-run-compare"),
    path(f"{_ONE}cancel/", pipeline_actions.BatchRunCancel.as_view(), name="batch-run-cancel"),
    path(f"{_ONE}pause/", pipeline_actions.BatchRunPause.as_view(), name="batch-run-pause"),
    path(f"{_ONE}resume/", pipeline_actions.BatchRunResume.as_view(), name="batch-run-resume"),
    path(f"{_ONE}retry/", pipeline_actions.BatchRunRetry.as_view(), name="batch-run-retry"),
    path(f"{_ONE}at-once/", pipeline_actions.BatchRunAtOnce.as_view(), name="batch-run-at-once"),
]
