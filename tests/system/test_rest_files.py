"""The lines of docs/rest.md for files of folders, run as they stand there against a whole platform."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.patience import until
from tests.system.client import Client
from tests.system.documented import lines_of, run_lines
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
_TOKEN = """
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_token
print(create_token(User.objects.get(role="superadmin"), "laptop")[1])
"""


def test_the_documented_lines_work(tmp_path: Path) -> None:
    if missing := [name for name in ("curl", "jq", "tar") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    work = tmp_path / "work"
    (work / "data/deep").mkdir(parents=True)
    for number in range(20):
        (work / f"data/deep/part-{number}.txt").write_text(str(number))
    (work / "model.bin").write_bytes(os.urandom(300_000))
    (work / "large.bin").write_bytes(os.urandom(3_000_000))
    with Platform(tmp_path / "data", agents=1, backend="simulated", images={}) as platform:
        done = platform.manage("shell", "--no-imports", "-c", _TOKEN)
        client = Client(platform.url, done.stdout.split()[-1])
        folder = client.post("folders/", {"name": "corpus"})["id"]
        until(lambda: client.folder(folder)["status"] == "READY", 60, "the folder is made")
        environ = {
            "PATH": os.environ["PATH"],
            "AUTH": f"Authorization: Bearer {client.token}",
            "API": f"{platform.url}/api/v1",
            "ID": folder,
        }
        said = run_lines(lines_of("### Files of folders"), work, environ)
        assert "part-7.txt" in said  # found, and in the archive
        (data,) = platform.data.glob(f"folders/*/{folder}/data")
        assert (data / "model.bin").read_bytes() == (work / "model.bin").read_bytes()
        assert (data / "large.bin").read_bytes() == (work / "large.bin").read_bytes()
        assert len(list((data / "data/deep").iterdir())) == 20
        assert (data / "new.txt").read_text() == "first line"
        assert (work / "head.bin").read_bytes() == (work / "model.bin").read_bytes()[:100]
        assert (work / "data.zip").read_bytes()[:2] == b"PK"
