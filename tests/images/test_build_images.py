"""``bin/build-images``: what it builds, what it skips, and what it tells its caller."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backendai.base.core.version import VERSION
from images.builder import engine
from images.builder.progress import Failure
from tests.effort import some

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "bin" / "build-images"
PROGRESS = re.compile(r"progress ([01]\.\d\d) (\S.*)")
BASE, PYTHON = "local/backendai-base:latest", "local/backendai-python:latest"
SCIENCE = "local/backendai-python-science:latest"


WAITED = "progress 0.00 waiting for another build to end\n"


class Bench:
    """The command with a docker of our own, whose registry answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        shutil.copy(Path(__file__).with_name("fake_docker.py"), folder / "bin" / "docker")
        (folder / "bin" / "docker").chmod(0o755)
        (folder / "registry").touch()
        self.environ = os.environ | {
            "FAKE_DOCKER": str(folder),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PIP_INDEX_URL": "https://pip.example/simple",
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        log = ("--log", str(self.folder / "log"))
        done = subprocess.run(
            [COMMAND, *arguments, *log], env=self.environ, capture_output=True, text=True, check=False, timeout=300
        )
        done.stdout = done.stdout.replace(WAITED, "")  # a test beside this one builds images of this checkout, too
        return done

    def calls(self, verb: str) -> list[list[str]]:
        calls = [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]
        return [call for call in calls if call[0] == verb and "--help" not in call]

    def built(self) -> list[str]:
        return [call[call.index("--tag") + 1] for call in self.calls("build")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.ci
def test_it_tells_shares_that_grow_and_ends_with_done(bench: Bench) -> None:
    done = bench.run("--progress")
    *changes, last = done.stdout.splitlines()
    assert (done.returncode, last) == (0, "done")
    matches = [PROGRESS.fullmatch(line) for line in changes]
    assert all(matches), changes
    shares = [float(match[1]) for match in matches if match]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert any(match[2] == "base: installing packages (step 2 of 3)" for match in matches if match)
    assert len(set(changes)) == len(changes)


def test_it_builds_the_base_first_and_writes_the_output_to_the_log(bench: Bench) -> None:
    assert bench.run().returncode == 0
    assert bench.built() == [BASE, PYTHON, SCIENCE]
    assert "#5 0.2 Get:1 something" in (bench.folder / "log").read_text()


def test_it_skips_images_that_are_up_to_date_unless_forced(bench: Bench) -> None:
    bench.run()
    again = bench.run("--progress")
    assert again.stdout.splitlines() == ["progress 1.00 The images are up to date.", "done"]
    assert len(bench.calls("build")) == 3
    bench.run("--force", "--only", "python")
    assert bench.built() == [BASE, PYTHON, SCIENCE, PYTHON]
    assert "--no-cache" in bench.calls("build")[-1]


@pytest.mark.ci
def test_it_builds_again_what_came_from_another_folder_content(bench: Bench) -> None:
    bench.run()
    images = json.loads((bench.folder / "images.json").read_text())
    images[PYTHON]["backendai.source"] = "0" * 16
    (bench.folder / "images.json").write_text(json.dumps(images))
    bench.run()
    assert bench.built() == [BASE, PYTHON, SCIENCE, PYTHON, SCIENCE]


@pytest.mark.ci
def test_it_builds_a_missing_base_for_only_python_and_nothing_else_for_only_base(bench: Bench) -> None:
    bench.run("--only", "base")
    assert bench.built() == [BASE]
    (bench.folder / "images.json").unlink()
    bench.run("--only", "python")
    assert bench.built() == [BASE, BASE, PYTHON]
    bench.run("--only", "python-science")
    assert bench.built() == [BASE, BASE, PYTHON, SCIENCE]


def test_it_builds_the_platform_itself_on_the_base_with_the_settings_of_the_site(bench: Bench) -> None:
    assert bench.run("--only", "portal").returncode == 0
    assert bench.built() == [BASE, f"backendai-portal:{VERSION}"]
    call = bench.calls("build")[1]
    assert call[-1] == str(ROOT) and f"BASE={BASE}" in call
    assert "id=pip-conf" in " ".join(call)
    bench.run("--only", "portal")
    assert len(bench.built()) == 2


def test_it_passes_site_settings_as_secrets_and_never_as_arguments(bench: Bench) -> None:
    bench.run()
    for call in bench.calls("build"):
        assert "pip.example" not in " ".join(call)
        assert any(word.startswith("id=pip-conf,src=") for word in call)


def test_it_names_the_fix_when_docker_does_not_answer(bench: Bench) -> None:
    (bench.folder / "bin" / "docker").write_text("#!/bin/sh\necho 'permission denied on the socket' >&2; exit 1\n")
    bench.environ["DOCKER_HOST"] = f"unix://{bench.folder}/absent.sock"  # for another docker on this machine
    done = bench.run("--progress")
    assert done.returncode == 1
    sentence, _, fix = done.stdout.strip().partition(" | ")
    assert sentence == "failed docker-unreachable Docker does not answer: permission denied on the socket"
    assert "usermod -aG docker" in fix


def test_it_says_when_no_docker_command_can_pass_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(engine, "STANDARD_FOLDERS", ())
    with pytest.raises(Failure) as caught:
        engine.find_engine(sys.stderr)
    assert caught.value.code == "buildkit-missing"
    assert "buildx" in caught.value.fix


@some(
    ("output", "code", "fix"),
    [
        ("write /var/x: no space left on device", "disk-full", "Free space"),
        ("E: Temporary failure resolving 'packages.example'", "no-network", "Check that apt-get update"),
        ("E: Unable to locate package tmux", "build-failed", "Read "),
    ],
    1,
)
def test_it_tells_why_a_build_failed_and_what_to_do(bench: Bench, output: str, code: str, fix: str) -> None:
    (bench.folder / "build-fails").write_text(f"#5 0.3 {output}\n")
    done = bench.run("--progress")
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"failed {code} base: ")
    assert last.partition(" | ")[2].startswith(fix)


def test_it_refuses_at_once_when_only_a_registry_would_do_and_none_answers(bench: Bench) -> None:
    (bench.folder / "registry").unlink()
    done = bench.run("--progress", "--base", "registry")
    assert done.stdout.splitlines()[-1].startswith("failed no-network No registry gave debian:bookworm-slim. | ")
    assert not bench.calls("build")


def test_it_refuses_unknown_arguments_as_misuse(bench: Bench) -> None:
    assert bench.run("--only", "nothing").returncode == 2
    assert bench.run("--base", "scratch").returncode == 2


def test_it_waits_while_another_build_holds_the_lock(bench: Bench) -> None:
    lock = os.open(ROOT / "images", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        second = subprocess.Popen([COMMAND, "--progress"], env=bench.environ, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert second.stdout.readline() == "progress 0.00 waiting for another build to end\n"
        assert not (bench.folder / "calls").exists()
    finally:
        os.close(lock)
    output, _ = second.communicate(timeout=60)
    assert output.splitlines()[-1] == "done"
