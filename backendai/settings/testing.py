"""Settings of the tests: the portal's, on a private data folder, with the database that the environment names."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_data, _owner = tempfile.mkdtemp(prefix="backendai-test-"), os.getpid()
os.environ["BACKENDAI_DATA"] = _data
Path(_data, "static").mkdir()  # else each client warns that it is missing
os.environ["DATABASE_URL"] = os.environ.get("BACKENDAI_TEST_DATABASE_URL", f"sqlite:///{_data}/portal.sqlite3")
os.environ["REDIS_URL"] = os.environ.get("BACKENDAI_TEST_REDIS_URL", f"unix://{_data}/absent.sock")


@atexit.register
def _delete_data() -> None:
    if os.getpid() == _owner:  # a forked process ends before the one that made the folder
        shutil.rmtree(_data, ignore_errors=True)


from backendai.settings.portal import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
NODE_BROKER_URL = ""  # who tests accounts names a broker of its own
DISK_RESERVE = 0  # and the test of the reserve
RATE_API = RATE_LAUNCH = RATE_PAGES = 0  # tests of the limits set their own
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
if "sqlite" in DATABASES["default"]["ENGINE"]:  # noqa: F405
    # No test pulls the plug: what is written need not be on the disk.
    _begin = DATABASES["default"]["OPTIONS"]["init_command"]  # noqa: F405
    DATABASES["default"]["OPTIONS"]["init_command"] = _begin.replace("synchronous=FULL", "synchronous=OFF")  # noqa: F405
else:
    DATABASES["default"]["OPTIONS"].pop("pool")  # noqa: F405  (its connections would keep the test database busy)
