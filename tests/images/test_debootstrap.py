"""debootstrap where this machine does not have it: fetched, verified, used, and nothing of the machine changed."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.builder import debootstrap, site_config
from images.builder.engine import run_command
from images.builder.progress import Failure
from images.builder.site_config import AptSource, Distribution

BOOKWORM = Distribution("debian", "12", "bookworm")
MIRROR = AptSource(("http://packages.example/debian",), ("bookworm",), ("main",))
FAKE_APT = """\
#!{python}
import os, pathlib, sys
with open("{folder}/calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + chr(10))
settings = pathlib.Path(sys.argv[2]).read_text()
if (problem := pathlib.Path("{folder}/apt-fails")).exists():
    print(problem.read_text())
    sys.exit(100)
if "install" in sys.argv:
    archives = pathlib.Path(sys.argv[2]).parent / "cache" / "archives"
    (archives / "debootstrap_1_all.deb").touch()
"""
FAKE_DPKG = """\
#!/bin/sh
mkdir -p "$3/usr/sbin" && printf '#!/bin/sh\\n' > "$3/usr/sbin/debootstrap" && chmod 755 "$3/usr/sbin/debootstrap"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only commands that there are: apt-get and dpkg-deb, both ours."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "apt-get").write_text(FAKE_APT.format(python=sys.executable, folder=tmp_path))
    (commands / "dpkg-deb").write_text(FAKE_DPKG)
    for path in commands.iterdir():
        path.chmod(0o755)
    monkeypatch.setattr(debootstrap, "SYSTEM_FOLDERS", str(commands))
    return tmp_path


def provide(machine: Path) -> dict[str, str]:
    folder = machine / "fetched"
    folder.mkdir()
    environ = {"PATH": f"{machine / 'bin'}:/usr/bin"}  # /usr/bin: what the fakes themselves run
    with (machine / "log").open("w") as log:
        return debootstrap.provide_debootstrap("No registry", folder, MIRROR, environ, log, lambda line: None)


def test_it_fetches_debootstrap_into_its_own_folder_and_verifies_it(machine: Path) -> None:
    found = provide(machine)
    command = shutil.which("debootstrap", path=found["PATH"])
    assert command == str(machine / "fetched/root/usr/sbin/debootstrap")
    assert found["DEBOOTSTRAP_DIR"] == str(machine / "fetched/root/usr/share/debootstrap")
    update, install = (machine / "calls").read_text().splitlines()
    assert "update --error-on=any" in update
    assert "--download-only debootstrap" in install, "nothing is installed"
    settings = (machine / "fetched/apt.conf").read_text()
    assert 'APT::Get::AllowUnauthenticated "false"' in settings
    assert f'Dir::State "{machine}/fetched/state"' in settings, "the package lists of the machine stay as they are"


def test_it_uses_the_debootstrap_of_the_machine_also_when_the_path_leaves_its_folder_out(machine: Path) -> None:
    command = machine / "bin" / "debootstrap"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    with (machine / "log").open("w") as log:
        found = debootstrap.provide_debootstrap("", machine, MIRROR, {"PATH": "/nowhere"}, log, lambda line: None)
    assert shutil.which("debootstrap", path=found["PATH"]) == str(command)
    assert not (machine / "calls").exists()


@pytest.mark.parametrize(
    ("output", "code", "fix"),
    [
        ("E: Temporary failure resolving 'packages.example'", "no-network", "Check that apt-get update"),
        ("E: Unable to locate package debootstrap", "debootstrap-missing", "apt-get install -y debootstrap"),
        ("E: write: No space left on device", "disk-full", "Free space"),
    ],
)
def test_it_says_why_it_cannot_be_fetched(machine: Path, output: str, code: str, fix: str) -> None:
    (machine / "apt-fails").write_text(output)
    with pytest.raises(Failure) as caught:
        provide(machine)
    assert caught.value.code == code
    assert fix in caught.value.fix


def test_another_distribution_is_told_to_install_it(machine: Path) -> None:
    (machine / "bin" / "apt-get").unlink()
    with pytest.raises(Failure) as caught:
        debootstrap.provide_debootstrap("x", machine, MIRROR, {"PATH": ""}, io.StringIO(), lambda line: None)
    assert caught.value.code == "debootstrap-missing"
    assert "without apt-get" in caught.value.sentence
    assert "package manager" in caught.value.fix


def test_it_needs_sources_root_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def code_of(sources: list[AptSource], uid: int) -> str:
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        with pytest.raises(Failure) as caught:
            debootstrap.find_mirror("x", BOOKWORM, sources)
        return caught.value.code

    unsigned = AptSource(MIRROR.uris, MIRROR.suites, MIRROR.components, signed_by=str(tmp_path / "absent.gpg"))
    assert code_of([], 0) == "no-network"
    assert code_of([MIRROR], 1000) == "root-needed"
    assert code_of([unsigned], 0) == "keyring-missing"


@pytest.fixture
def own_tag() -> Iterator[str]:
    tag = f"local/backendai-test:root-{os.getpid()}"
    yield tag
    subprocess.run(["docker", "image", "rm", tag], capture_output=True, check=False)


@pytest.mark.long
@pytest.mark.docker
def test_it_makes_a_root_image_with_a_debootstrap_that_it_fetched(
    monkeypatch: pytest.MonkeyPatch, own_tag: str
) -> None:
    """Needs root, Debian, its package mirror and an engine."""
    real = shutil.which
    absent = lambda name, **told: None if name == "debootstrap" else real(name, **told)  # noqa: E731
    monkeypatch.setattr(debootstrap.shutil, "which", absent)
    distribution = site_config.read_distribution()
    mirror = debootstrap.find_mirror("x", distribution, site_config.read_apt_sources(distribution.suite))
    folder = Path(f"/var/tmp/backendai-test-{os.getpid()}")
    folder.mkdir()
    try:
        found = debootstrap.provide_debootstrap("x", folder, mirror, os.environ, sys.stderr, lambda line: None)
        assert str(real("debootstrap", path=found["PATH"])).startswith(str(folder))
        command = [str(Path(debootstrap.__file__).parents[1] / "debian" / "build"), own_tag, distribution.suite]
        command += [mirror.uris[0], "main", debootstrap.keyring_of(mirror, distribution)]
        status, tail = run_command(command, found, sys.stderr, lambda line: None)
        assert status == 0, tail
    finally:
        shutil.rmtree(folder)
    told = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", own_tag, "cat", "/etc/os-release"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"VERSION_CODENAME={distribution.suite}" in told.stdout
