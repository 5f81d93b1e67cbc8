"""Settings of the portal (web, control, beat and the commands). Every value that differs between installations comes
from the environment; ``.env.example`` lists them all, and ``backendai.ops.checks`` refuses what cannot work."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import environ
from csp.constants import NONE, SELF
from django.utils.translation import gettext_lazy

from backendai.base.paths.installation import FILES, data_folder
from backendai.portal.http.routes import LARGEST_BODY
from backendai.settings import environment as told
from backendai.settings.secret_store import load_secrets

BASE_DIR = FILES
told.read_files()

# -- where things are --------------------------------------------------------------------------------------------------
DATA_DIR = data_folder(os.environ)
_stored = {} if told.text("BACKENDAI_SECRET_KEY") else load_secrets(DATA_DIR / "secrets.json")
SECRET_KEY = told.text("BACKENDAI_SECRET_KEY", _stored.get("secret_key", ""))
SECRET_KEY_FALLBACKS = told.words("BACKENDAI_SECRET_KEY_FALLBACKS")
TICKET_KEY = told.text("BACKENDAI_TICKET_KEY", _stored.get("ticket_key", "")).replace("\\n", "\n")
DEPLOYMENT = told.text("BACKENDAI_DEPLOYMENT", _stored.get("deployment", "default"))

# Said when an image is made; a clone says it by itself.
BUILD_COMMIT, BUILD_DATE = told.text("BACKENDAI_BUILD_COMMIT"), told.text("BACKENDAI_BUILD_DATE")

DEBUG = told.switch("BACKENDAI_DEBUG")
DEMO = told.switch("BACKENDAI_DEMO")  # everybody signs in without a password: only bin/up --demo sets it
DEMO_SPEED = told.number("BACKENDAI_DEMO_SPEED", 1.0, least=0.1, most=60.0)
PORT = told.whole("BACKENDAI_PORT", 8080, least=1, most=65535)
# Who listens on this machine only is asked for by this machine's names only: a page elsewhere whose name was made to
# point here reaches nothing.
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
LISTENS_HERE_ONLY = told.text("BACKENDAI_HOST") in _LOOPBACK
_NAMES = told.words("BACKENDAI_ALLOWED_HOSTS", [".localhost"] if LISTENS_HERE_ONLY else ["*"])
CSRF_TRUSTED_ORIGINS = told.words("BACKENDAI_TRUSTED_ORIGINS")
SECURE = told.switch("BACKENDAI_HTTPS")
PORTAL_URL = told.text("BACKENDAI_PORTAL_URL", f"http://127.0.0.1:{PORT}")
DOOR_URL = told.text("BACKENDAI_DOOR_URL", PORTAL_URL)
# Parts of the platform ask there, whatever people call the portal: agents, health checks, the control worker.
_INSIDE = [name for url in (PORTAL_URL, DOOR_URL) if (name := urlsplit(url).hostname) and ":" not in name]
ALLOWED_HOSTS = [*dict.fromkeys([*_NAMES, *_INSIDE, "127.0.0.1", "[::1]"])]
# Apps of sessions live under names of their own: what users run there never shares the portal's origin.
APPS_DOMAIN = told.text("BACKENDAI_APPS_DOMAIN", "apps.localhost").strip(".").lower()
APPS_HOST = told.text("BACKENDAI_APPS_HOST", told.text("BACKENDAI_HOST") or "127.0.0.1")
APPS_PORT = told.whole("BACKENDAI_APPS_PORT", PORT + 1, least=1, most=65535)
APPS_PUBLIC_PORT = told.whole("BACKENDAI_APPS_PUBLIC_PORT", 443 if SECURE else APPS_PORT, least=1, most=65535)
# SSH into sessions. Clients know the site by one host key, which is made from the ticket key unless it is told.
SSH_HOST = told.text("BACKENDAI_SSH_HOST", told.text("BACKENDAI_HOST") or "127.0.0.1")
SSH_PORT = told.whole("BACKENDAI_SSH_PORT", 2200, least=1, most=65535)
SSH_PUBLIC_HOST = told.text("BACKENDAI_SSH_PUBLIC_HOST")
SSH_PUBLIC_PORT = told.whole("BACKENDAI_SSH_PUBLIC_PORT", SSH_PORT, least=1, most=65535)
SSH_PROCESSES = told.whole("BACKENDAI_SSH_PROCESSES", 1, least=0, most=64)
SSH_PROXIES = told.words("BACKENDAI_SSH_PROXIES")
SSH_HOST_KEY = told.text("BACKENDAI_SSH_HOST_KEY").replace("\\n", "\n")
# Where second factors are required, SSH keys let in that long after a sign-in to the portal (0: always).
SSH_FRESH_LOGIN = timedelta(hours=told.number("BACKENDAI_SSH_FRESH_LOGIN", 0.0, least=0, most=366 * 24))
# The official client of Backend.AI is served under /compat.
COMPAT = told.switch("BACKENDAI_COMPAT")
METRICS_TOKEN = told.text("BACKENDAI_METRICS_TOKEN")
METRICS_NETWORKS = told.words("BACKENDAI_METRICS_NETWORKS")
# Where processes without an HTTP server offer them; empty: nowhere.
CONTROL_METRICS, SSH_METRICS = told.text("BACKENDAI_CONTROL_METRICS"), told.text("BACKENDAI_SSH_METRICS")
# Where faults and traces go; empty: nowhere.
SENTRY_DSN, OTLP_ENDPOINT = told.text("BACKENDAI_SENTRY_DSN"), told.text("BACKENDAI_OTLP_ENDPOINT").rstrip("/")
# The server that scaling rules of endpoints may ask, and how often.
PROMETHEUS_URL = told.text("BACKENDAI_PROMETHEUS_URL").rstrip("/")
METRICS_INTERVAL = timedelta(seconds=15)
# Where the portal reaches the file server of the storage host ``local``; the others say it themselves.
FILES_URL = told.text("BACKENDAI_FILES_URL", f"http://{told.text('BACKENDAI_FILES_BIND', '127.0.0.1:8093')}")
# Folders of this machine that bin/up makes; elsewhere an administrator prepares storage hosts.
_folders = DATA_DIR / "folders"
LOCAL_FOLDERS = _folders if f"local={_folders}" in told.words("BACKENDAI_STORAGE_HOSTS") else None
# Empty is an answer here: nodes work by polling.
NODE_BROKER_URL = os.environ.get("BACKENDAI_NODE_BROKER_URL", told.text("REDIS_URL"))

# -- rooms -------------------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "django_tables2",
    "csp",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "backendai.domain.activity",
    "backendai.domain.accounts",
    "backendai.domain.cluster",
    "backendai.domain.catalog",
    "backendai.domain.storage",
    "backendai.domain.compute",
    "backendai.domain.templates",
    "backendai.domain.usage",
    "backendai.domain.planning",
    "backendai.domain.forecasts",
    "backendai.domain.serving",
    "backendai.domain.pipelines",
    "backendai.portal.loops",
    "backendai.portal.api",
    "backendai.portal.web",
    "backendai.portal.realtime",
    "backendai.gates.appproxy",
    "backendai.gates.sshgate",
    "backendai.files",
    "backendai.ops",
]
MIDDLEWARE = [
    "backendai.portal.http.request_ids.identify_requests",
    "backendai.portal.compat.problems.use_client_form",
    "backendai.portal.http.database_away.AnswerWhileAway",
    "backendai.portal.http.guards.RefuseNullBytes",
    "backendai.portal.http.guards.RefuseAppHosts",
    "backendai.base.db.per_request.keep_for_request",
    "django.middleware.security.SecurityMiddleware",
    "backendai.portal.http.static_files.serve_files",
    "backendai.portal.http.compression.compress_pages",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "backendai.portal.http.refusals.audit_refusals",
    "backendai.portal.web.frame.language.Language",
    "backendai.portal.web.frame.page_rates.LimitPages",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "backendai.portal.web.sign_in.second_factor_gate.gate",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "backendai.portal.api.frame.idempotency.keep_answers",
]
ROOT_URLCONF = "backendai.urls"
ASGI_APPLICATION = "backendai.asgi.application"
WSGI_APPLICATION = "backendai.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {"i18n": "backendai.portal.web.frame.sentences"},
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- database ----------------------------------------------------------------------------------------------------------
DATABASES = {"default": told.database("DATABASE_URL", f"sqlite:///{DATA_DIR / 'portal.sqlite3'}")}
_database = DATABASES["default"]
if "sqlite" in _database["ENGINE"]:
    # IMMEDIATE: with DEFERRED, six writers lose nine transactions out of ten to "database is locked".
    # Threads live on (see asgi.py), and a file does not go away.
    _database["CONN_MAX_AGE"] = None
    _database["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-16000;",
    }
else:
    _most_connections = told.whole("BACKENDAI_DATABASE_POOL", 10, least=1, most=1000)
    _database["OPTIONS"] = {
        "pool": {"min_size": 1, "max_size": _most_connections, "timeout": 10},
        "connect_timeout": 3,
        "options": "-c statement_timeout=10000 -c lock_timeout=3000 -c idle_in_transaction_session_timeout=30000",
    }

# -- Redis: hints, browser events --------------------------------------------------------------------------------------
REDIS_URL = told.text("REDIS_URL", f"unix://{DATA_DIR / 'valkey.sock'}")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        # The client's default socket timeout would close every idle websocket after five seconds.
        "CONFIG": {
            "hosts": [{"address": REDIS_URL, "socket_timeout": None}],
            "prefix": f"{DEPLOYMENT}:events",
            # Nodes may use the same server: they shall neither read nor forge what browsers are told.
            "symmetric_encryption_keys": [SECRET_KEY],
        },
    }
}

# -- the loops ---------------------------------------------------------------------------------------------------------
PASS_INTERVAL = timedelta(seconds=2)
REPAIR_INTERVAL = timedelta(seconds=30)
OBSERVE_INTERVAL = timedelta(minutes=5)
IDLE_INTERVAL = timedelta(seconds=15)
FORECAST_INTERVAL = timedelta(seconds=15)
SYNC_INTERVAL = timedelta(seconds=told.number("BACKENDAI_SYNC_INTERVAL", 5.0, least=0.05, most=60))
USAGE_FINE_FOR = timedelta(hours=told.number("BACKENDAI_USAGE_FINE_HOURS", 24.0, least=2, most=366 * 24))
USAGE_KEPT_FOR = timedelta(days=told.number("BACKENDAI_USAGE_DAYS", 7.0, least=1, most=366))
# 0: for ever. A log is read soon after its session; the history answers questions about the last year; the audit trail
# is deleted only where the site says so.
KEEP_LOGS = timedelta(days=told.whole("BACKENDAI_KEEP_LOGS_DAYS", 90, least=0, most=36500))
KEEP_HISTORY = timedelta(days=told.whole("BACKENDAI_KEEP_HISTORY_DAYS", 365, least=0, most=36500))
KEEP_RUNS = timedelta(days=told.whole("BACKENDAI_KEEP_RUNS_DAYS", 365, least=0, most=36500))
KEEP_AUDIT = timedelta(days=told.whole("BACKENDAI_KEEP_AUDIT_DAYS", 0, least=0, most=36500))
LOG_BYTES_PER_OWNER = told.whole("BACKENDAI_LOG_BYTES_PER_OWNER", 2**30, least=0, most=2**50)
FOLDERS_INTERVAL = timedelta(seconds=30)
FOLDER_TRASH_FOR = timedelta(days=told.whole("BACKENDAI_FOLDER_TRASH_DAYS", 30, least=0, most=36500))  # 0: for ever
STOPPED_FOR = timedelta(days=told.whole("BACKENDAI_STOPPED_DAYS", 90, least=0, most=36500))  # 0: for ever
AGENT_LOST_AFTER = timedelta(seconds=told.number("BACKENDAI_AGENT_LOST_AFTER", 60.0, least=1, most=86400))

# -- kernels ---------------------------------------------------------------------------------------------------------
DEFAULT_SEQUENCE = told.text("BACKENDAI_DEFAULT_SEQUENCE", "fifo")
CLUSTER_POOL = told.text("BACKENDAI_CLUSTER_POOL", "10.88.0.0/16")
SCRATCH_BYTES = told.whole("BACKENDAI_SCRATCH_BYTES", 10 * 2**30, least=64 * 2**20, most=2**50)
DISK_RESERVE = told.whole("BACKENDAI_DISK_RESERVE", 256 * 2**20, least=0, most=2**40)
COMMIT_BYTES = told.whole("BACKENDAI_COMMIT_BYTES", 10 * 2**30, least=0, most=2**50)
COMMIT_TIMEOUT = told.whole("BACKENDAI_COMMIT_TIMEOUT", 1800, least=60, most=86400)
HOME_STORE_TIMEOUT = told.whole("BACKENDAI_HOME_STORE_TIMEOUT", 300, least=10, most=86400)
STOP_GRACE = told.whole("BACKENDAI_STOP_GRACE", 60, least=1, most=3600)  # for programs to save their state

# Seconds for which an app proxy without the database serves endpoints from its endpoint table. Meanwhile, a revoked
# token still opens its endpoint.
SERVING_TRUST = told.whole("BACKENDAI_SERVING_TRUST", 86400, least=60, most=30 * 86400)
# When an app proxy or an agent stops, open requests to endpoints get so many seconds to end.
SERVING_GRACE = told.number("BACKENDAI_SERVING_GRACE", 30.0, least=0, most=600)
# Owners may create endpoints to which anybody can send requests, without a token.
SERVING_PUBLIC = told.switch("BACKENDAI_SERVING_PUBLIC")

# The end of a kernel's log comes in one piece (compute.services.logs.LARGEST).
DATA_UPLOAD_MAX_MEMORY_SIZE = LARGEST_BODY

# -- people ------------------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "accounts.User"
from backendai.settings.sign_in import *  # noqa: E402, F403  (.env has been read by now)

PASSWORD_HASHERS = [
    "backendai.domain.accounts.sign_in.hashing.SmallArgon2",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_COOKIE_NAME = "__Host-portal" if SECURE else "portal"
CSRF_COOKIE_NAME = "__Host-csrf" if SECURE else "csrf"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_HSTS_SECONDS = 31536000 if SECURE else 0
SILENCED_SYSTEM_CHECKS = [
    "security.W005",  # HSTS for names below the portal's: their operators decide how they are reached
    "security.W008",  # the proxy redirects to HTTPS; agents and health checks may come by HTTP from the inner network
    "security.W021",  # browsers' preload lists take whole registered domains, of which the portal is one name
    "templates.W003",  # our i18n replaces the library of that name, to keep the direction of names apart
]
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# How often one person may ask in a minute (0: as often as they like), and how many launches may come at once. Pages are
# counted by account, or by address where nobody is signed in.
RATE_PAGES = told.whole("BACKENDAI_RATE_PAGES", 1200, least=0, most=10**9)
RATE_API = told.whole("BACKENDAI_RATE_API", 600, least=0, most=10**9)
RATE_LAUNCH = told.whole("BACKENDAI_RATE_LAUNCH", 30, least=0, most=10**9)
RATE_LAUNCH_BURST = told.whole("BACKENDAI_RATE_LAUNCH_BURST", 10, least=1, most=10**9)

# -- mail --------------------------------------------------------------------------------------------------------------
EMAIL_URL = told.text("BACKENDAI_EMAIL_URL")
EMAIL_SCHEMES = ("smtp", "smtp+tls", "smtp+ssl", "consolemail")
if EMAIL_URL.partition("://")[0] in EMAIL_SCHEMES:
    vars().update(environ.Env.email_url_config(EMAIL_URL))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = told.text("BACKENDAI_EMAIL_FROM", "portal@localhost")

# -- REST --------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "backendai.portal.api.frame.authentication.BearerAuthentication",
        "backendai.portal.api.frame.authentication.SignatureAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": [
        "backendai.portal.api.frame.authentication.PersonalRate",
        "backendai.portal.api.frame.idempotency.RepeatedRequests",
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["backendai.portal.api.frame.parsing.StrictJSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["backendai.portal.api.frame.filters.RequestedFilters"],
    "DEFAULT_SCHEMA_CLASS": "backendai.portal.api.frame.operations.Operation",
    "EXCEPTION_HANDLER": "backendai.portal.api.frame.errors.handle_exception",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
FILTERS_EMPTY_CHOICE_LABEL = gettext_lazy("any")
SPECTACULAR_SETTINGS = {
    "TITLE": "Backend.AI portal",
    "DESCRIPTION": "Compute sessions, and what they run on.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "backendai.portal.api.frame.operations.add_problems",
        "backendai.portal.api.frame.operations.drop_defaults",
        "backendai.portal.api.frame.operations.add_examples",
    ],
    "ENUM_NAME_OVERRIDES": {
        "UserRole": "backendai.domain.accounts.models.User.Role",
        "MemberRole": "backendai.domain.accounts.models.Membership.Role",
        "ExplanationBodyVerdictEnum": "backendai.portal.api.sessions.explanations.VERDICTS",
        "IdleCheckerKind": "backendai.scheduler.idle_kinds.kind_choices",
        "TemplateScope": "backendai.domain.templates.models.Template.Scope",
        "InvitationState": "backendai.domain.accounts.models.Invitation.State",
    },
}

# -- texts, assets, logs -----------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("ko", "한국어")]
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGE_COOKIE_NAME = "__Host-language" if SECURE else "language"
LANGUAGE_COOKIE_AGE = 365 * 86400
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SECURE = SECURE
TIME_ZONE = told.time_zone("BACKENDAI_TIME_ZONE", "UTC")
USE_TZ = True
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "backendai.portal.web.frame.bundles.BundledStorage"},
}
_LINE = told.log_shape("BACKENDAI_LOG_FORMAT", "%(asctime)s %(levelname)s %(name)s: %(message)s%(request_part)s")
_AUDIT = told.audit_handler("BACKENDAI_AUDIT_LOG")
COPIES_AUDIT = _AUDIT is not None
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": _LINE, "audit": {"format": "backendai-audit: %(message)s"}},
    "filters": {"request": {"()": "backendai.portal.http.request_ids.AddRequestId"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request"]}},
    "root": {"handlers": ["console"], "level": told.choice("BACKENDAI_LOG_LEVEL", told.LOG_LEVELS, "INFO")},
    "loggers": {
        # A pass every two seconds is not news.
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        # With the broker down both would write a traceback every two seconds; the passes go on by their own clock.
        "celery.beat": {"level": "CRITICAL"},
        "channels_redis": {"level": "CRITICAL"},
        "asyncssh": {"level": "WARNING"},  # several lines for each connection that doctor, gate and tests open
    },
}
if _AUDIT:
    LOGGING["handlers"]["audit"] = _AUDIT
    LOGGING["loggers"]["backendai.audit"] = {"handlers": ["audit"], "level": "INFO", "propagate": False}
if "()" in _LINE:  # uvicorn has set up its own handler
    LOGGING["loggers"]["uvicorn"] = {"handlers": ["console"], "level": "INFO", "propagate": False}
