"""Paths of the node API."""

from django.urls import path

from backendai.portal.agents import views as node_api

urlpatterns = [
    path("join", node_api.join, name="node-join"),
    path("broker", node_api.broker, name="node-broker"),
    path("sync", node_api.sync, name="node-sync"),
    path("bundle", node_api.bundle, name="node-bundle"),
    path("kernels/<uuid:kernel_id>", node_api.kernel, name="node-kernel"),
    path("kernels/<uuid:kernel_id>/report", node_api.report, name="node-report"),
    path("kernels/<uuid:kernel_id>/registry", node_api.registry, name="node-registry"),
    path("jobs/<str:kind>/<uuid:job_id>", node_api.job, name="node-job"),
    path("jobs/<str:kind>/<uuid:job_id>/report", node_api.job_report, name="node-job-report"),
    path("kernels/<uuid:kernel_id>/log", node_api.log, name="node-log"),
]
