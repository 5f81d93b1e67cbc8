"""Settings of compute nodes and file servers: no database, no models, no secret of the portal. What differs between
them is read by ``backendai.agent.settings.config`` and ``backendai.files.config``."""

from __future__ import annotations

import secrets

from backendai.settings import environment as told

told.read_dotenv()

SECRET_KEY = secrets.token_urlsafe(50)  # signs nothing; Django asks for one
INSTALLED_APPS = ["backendai.agent", "backendai.files"]
DATABASES: dict[str, dict[str, str]] = {}
USE_TZ = True
TIME_ZONE = "UTC"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": told.log_shape("BACKENDAI_LOG_FORMAT", "%(asctime)s %(levelname)s %(name)s: %(message)s")},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": told.choice("BACKENDAI_LOG_LEVEL", told.LOG_LEVELS, "INFO")},
    "loggers": {
        "urllib3": {"level": "ERROR"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
