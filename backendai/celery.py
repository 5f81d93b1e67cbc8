"""The Celery app of the control workers and of beat. Messages are hints: losing or doubling one costs time only."""

from __future__ import annotations

import os
import warnings

from celery import Celery
from celery.exceptions import SecurityWarning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backendai.settings.portal")

from django.conf import settings

from backendai.base.wire.broker.queues import broker_address

# Celery warns root about pickle; only JSON is accepted here.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("backendai", task_cls="backendai.portal.loops.outages:OutageTask")
app.conf.update(
    broker_url=broker_address(settings.REDIS_URL),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    task_default_queue="control",
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    beat_schedule={
        "pass": {
            "task": "controller.run_pass",
            "schedule": settings.PASS_INTERVAL.total_seconds(),
            "options": {"expires": settings.PASS_INTERVAL.total_seconds()},
        },
        "repair": {
            "task": "controller.run_repair",
            "schedule": settings.REPAIR_INTERVAL.total_seconds(),
            "options": {"expires": settings.REPAIR_INTERVAL.total_seconds()},
        },
        "idle": {
            "task": "controller.run_idle",
            "schedule": settings.IDLE_INTERVAL.total_seconds(),
            "options": {"expires": settings.IDLE_INTERVAL.total_seconds()},
        },
        "forecasts": {
            "task": "controller.run_forecasts",
            "schedule": settings.FORECAST_INTERVAL.total_seconds(),
            "options": {"expires": settings.FORECAST_INTERVAL.total_seconds()},
        },
        "folders": {
            "task": "controller.run_folders",
            "schedule": settings.FOLDERS_INTERVAL.total_seconds(),
            "options": {"expires": settings.FOLDERS_INTERVAL.total_seconds()},
        },
        "serving": {
            "task": "controller.run_serving",
            "schedule": settings.PASS_INTERVAL.total_seconds(),
            "options": {"expires": settings.PASS_INTERVAL.total_seconds()},
        },
        "metrics": {
            "task": "controller.read_metrics",
            "schedule": settings.METRICS_INTERVAL.total_seconds(),
            "options": {"expires": settings.METRICS_INTERVAL.total_seconds()},
        },
        "pipelines": {
            "task": "controller.run_pipelines",
            "schedule": settings.PASS_INTERVAL.total_seconds(),
            "options": {"expires": settings.PASS_INTERVAL.total_seconds()},
        },
        "observe": {
            "task": "controller.run_observe",
            "schedule": settings.OBSERVE_INTERVAL.total_seconds(),
            "options": {"expires": settings.OBSERVE_INTERVAL.total_seconds()},
        },
    },
)
if "sqlite" in settings.DATABASES["default"]["ENGINE"]:
    # Celery would open the database anew for every task; a file does not go away. It reads this spelling only.
    app.conf.update(CELERY_DB_REUSE_MAX=10_000)
app.autodiscover_tasks(["backendai.portal.loops"])
# The passes go on by a clock of their own when the broker is down.
app.steps["worker"].add("backendai.portal.loops.clock:ClockStep")
