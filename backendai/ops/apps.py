from django.apps import AppConfig
from django.conf import settings

from backendai.base.process.telemetry import report_faults, send_traces


class OpsConfig(AppConfig):
    name = "backendai.ops"
    label = "ops"

    def ready(self) -> None:
        report_faults(settings.SENTRY_DSN)
        send_traces(settings.OTLP_ENDPOINT, "backendai", ("django", "celery", "psycopg"))
        from . import admin_site, checks  # noqa: F401, PLC0415  (they register; Django has no earlier moment)
