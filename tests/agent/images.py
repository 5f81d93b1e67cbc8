"""Images for tests, made from programs of this machine: no registry and no build is needed."""

from __future__ import annotations

import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from docker import APIClient
from docker.errors import ImageNotFound

from tests.agent.specs import TINY_IMAGE

# Repositories of their own: the portal takes the tags of one repository for versions of one environment.
TMUX_IMAGE = "local/backendai-test-tmux:1"
SERVICE_IMAGE = "local/backendai-test-service:1"
PYTHON_IMAGE = "local/backendai-test-python:1"
SERVICE_LABEL = "notes:http:[8000],broken:http:8001,byhand:preopen:8002,ring:tcp:8003"
SSH_IMAGE = "local/backendai-test-ssh:1"
MPI_IMAGE = "local/backendai-test-mpi:1"
WORK_IMAGE = "local/backendai-test-work:2"
LINKED_IMAGE = "local/backendai-test-linked:1"
SHELLLESS_IMAGE = "local/backendai-test-shellless:1"
LABEL = "backendai-test.image"
File = tuple[str, bytes | Path | str]  # a name with its content, the file that is copied, or the target of a link
_SERVICE_FILES = Path(__file__).parent / "service_image"
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nwork:x:1000:1000:work:/home/work:/bin/sh\n"
_GROUP = b"root:x:0:\nwork:x:1000:\n"


def ensure_tiny_image(client: APIClient) -> str:
    """Return the reference of a 2 MB image with busybox, imported if it is not there. Needs a static busybox."""
    if not has_image(client, TINY_IMAGE):
        _import(client, TINY_IMAGE, _busybox_files())
    return TINY_IMAGE


def ensure_shellless_image(client: APIClient) -> str:
    """Return the reference of an image with two text files and nothing that runs."""
    if not has_image(client, SHELLLESS_IMAGE):
        _import(client, SHELLLESS_IMAGE, [("etc/passwd", _PASSWD), ("etc/group", _GROUP)])
    return SHELLLESS_IMAGE


def ensure_tmux_image(client: APIClient) -> str:
    """Return the reference of the tiny image with tmux, its libraries and terminal descriptions added."""
    if not has_image(client, TMUX_IMAGE):
        _import(client, TMUX_IMAGE, [*_busybox_files(), *_tmux_files()])
    return TMUX_IMAGE


def ensure_service_image(client: APIClient) -> str:
    """Return the reference of the tiny image with services: ``notes`` is a page with a websocket, ``broken`` ends at
    once, ``byhand`` is started by people."""
    if not has_image(client, SERVICE_IMAGE):
        told = (f"LABEL ai.backend.service-ports={SERVICE_LABEL}",)
        _import(client, SERVICE_IMAGE, [*_busybox_files(), *_service_files()], told)
    return SERVICE_IMAGE


def ensure_python_image(client: APIClient) -> str:
    """Return the reference of the tiny image with the system's Python and its standard library."""
    if not has_image(client, PYTHON_IMAGE):
        _import(client, PYTHON_IMAGE, [*_busybox_files(), *_python_files()])
    return PYTHON_IMAGE


def ensure_work_image(client: APIClient) -> str:
    """Return the reference of the tiny image with Python and git, as people develop in. Needs git."""
    if not has_image(client, WORK_IMAGE):
        programs = [Path("/usr/bin/git"), Path("/usr/bin/nohup")]  # Debian's busybox has no nohup
        files = [(str(path).lstrip("/"), path) for path in [*programs, *_libraries_of(programs)]]
        links = [(f"bin/git-{name}", "/usr/bin/git") for name in ("receive-pack", "upload-pack")]
        told = {name: content for name, content in [*_busybox_files(), *_python_files(), *files, *links]}
        _import(client, WORK_IMAGE, told.items())
    return WORK_IMAGE


def ensure_ssh_image(client: APIClient) -> str:
    """Return the reference of the tiny image with a client and a server of SSH. Needs openssh-server."""
    if not has_image(client, SSH_IMAGE):
        programs = [Path(path) for path in ("/usr/bin/ssh", "/usr/sbin/sshd", "/usr/lib/openssh/sftp-server")]
        files = [(str(path).lstrip("/"), path) for path in [*programs, *_libraries_of(programs)]]
        _import(client, SSH_IMAGE, [*_busybox_files(), *files])
    return SSH_IMAGE


def ensure_mpi_image(client: APIClient) -> str:
    """Return the reference of the SSH image with Open MPI. Needs openssh-server and openmpi-bin."""
    if not has_image(client, MPI_IMAGE):
        named = ["/usr/bin/ssh", "/usr/sbin/sshd", *(f"/usr/bin/{name}" for name in ("mpirun", "orted"))]
        folders = [Path("/usr/lib", f"{platform.machine()}-linux-gnu", name) for name in ("openmpi", "pmix2")]
        shared = [*folders, Path("/usr/share/openmpi"), Path("/etc/openmpi")]
        kept = [path for folder in shared for path in folder.rglob("*") if path.is_file()]
        programs = [*map(Path, named), *(path for path in kept if ".so" in path.suffixes)]
        files = {str(path).lstrip("/"): path for path in [*map(Path, named), *kept, *_libraries_of(programs)]}
        _import(client, MPI_IMAGE, dict([*_busybox_files(), *files.items()]).items())
    return MPI_IMAGE


def ensure_linked_image(client: APIClient) -> str:
    """Return the reference of the tiny image with links where kernels have mounts; one of them leads nowhere."""
    if not has_image(client, LINKED_IMAGE):
        _import(client, LINKED_IMAGE, [*_busybox_files(), ("var/tmp", "/tmp"), ("run", "/srv/run")])
    return LINKED_IMAGE


def ensure_packages_image(
    client: APIClient, reference: str, packages: Path, *, more: Iterable[File] = (), told: tuple[str, ...] = ()
) -> str:
    """Return the reference of the Python image with these installed packages under ``/opt/packages``; ``more`` files
    and lines of a Dockerfile (``told``) come on top."""
    if not has_image(client, reference):
        found = [path for path in packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        compiled = [path for path in found if ".so" in path.suffixes]
        outside = [path for path in _libraries_of(compiled) if packages not in path.parents]
        files = [(f"opt/packages/{path.relative_to(packages)}", path) for path in found]
        files += [(str(path).lstrip("/"), path) for path in outside]
        # Libraries of the packages are often Python's own, and an archive may name a path once.
        _import(client, reference, dict([*_busybox_files(), *_python_files(), *files, *more]).items(), told)
    return reference


def has_image(client: APIClient, reference: str) -> bool:
    """Return whether the engine has the image."""
    try:
        client.inspect_image(reference)
    except ImageNotFound:
        return False
    return True


def _libraries_of(programs: Iterable[Path]) -> list[Path]:
    linked = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout.split()
    return sorted({Path(word) for word in linked if word.startswith("/") and not word.endswith(":")})


def _python_files() -> list[File]:
    python = Path("/usr/bin/python3").resolve()
    library = Path("/usr/lib", python.name)
    assert library.is_dir(), "install python3"
    left_out = {"__pycache__", "test", "idlelib", "lib2to3", "ensurepip", "dist-packages"}
    modules = [path for path in library.rglob("*") if path.is_file() and not left_out & set(path.parts)]
    compiled = [path for path in modules if path.suffix == ".so"]
    files = [(str(path).lstrip("/"), path) for path in sorted({*modules, *_libraries_of([python, *compiled])})]
    return [("usr/bin/python3", python), *files]


def _busybox_files() -> list[File]:
    busybox = shutil.which("busybox")
    assert busybox, "install busybox-static"
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links: list[File] = [(f"bin/{name}", "busybox") for name in names if name != "busybox"]
    return [("bin/busybox", Path(busybox)), ("etc/passwd", _PASSWD), ("etc/group", _GROUP), *links]


def _tmux_files() -> list[File]:
    tmux = shutil.which("tmux")
    assert tmux, "install tmux"
    linked = subprocess.run(["ldd", tmux], capture_output=True, text=True, check=True).stdout.split()
    libraries = [Path(word) for word in linked if word.startswith("/")]
    descriptions = [Path("/lib/terminfo/x/xterm-256color"), Path("/lib/terminfo/s/screen-256color")]
    locale = [path for path in Path("/usr/lib/locale/C.utf8").rglob("*") if path.is_file()]
    return [(str(path).lstrip("/"), path) for path in [Path(tmux), *libraries, *descriptions, *locale]]


def _service_files() -> list[File]:
    notes = {"command": ["nc", "-ll", "-p", "{ports[0]}", "-e", "/srv/handle"], "url_template": "/notes"}
    broken = {"command": ["sh", "-c", "echo nothing works >&2; exit 3"]}
    definitions = "etc/backend.ai/service-defs"
    return [
        (f"{definitions}/notes.json", json.dumps(notes).encode()),
        (f"{definitions}/broken.json", json.dumps(broken).encode()),
        *((f"srv/{path.name}", path) for path in (_SERVICE_FILES / "handle", _SERVICE_FILES / "page.html")),
    ]


def _import(client: APIClient, reference: str, files: Iterable[File], more: tuple[str, ...] = ()) -> None:
    repository, _, tag = reference.partition(":")
    client.import_image_from_data(
        _archive(files),
        repository=repository,
        tag=tag,
        changes=["ENV PATH=/bin:/usr/bin", 'ENTRYPOINT ["/bin/false"]', f"LABEL {LABEL}=yes", *more],
    )


def _archive(files: Iterable[File]) -> bytes:
    """Return a tar of the files: a path is copied, bytes are content, a string is the target of a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder, mode, owner in (("tmp", 0o1777, 0), ("home/work", 0o755, 1000), ("proc", 0o755, 0)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
            tar.addfile(entry)
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if isinstance(content, Path):
                data = content.read_bytes()
            elif isinstance(content, str):
                entry.type, entry.linkname, data = tarfile.SYMTYPE, content, b""
            else:
                data = content
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
