"""What people do by SSH in an image with Python and git: shells, repositories, copies, editors, several kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.domain.compute.models import ComputeSession
from tests.agent.conftest import backend, deployment, engine, new_spec  # noqa: F401
from tests.agent.contract_tools import NewSpec
from tests.agent.images import ensure_work_image
from tests.cast import Cast
from tests.factories import make_running_session
from tests.patience import patient
from tests.sshgate.sockets import free_port, page_of, page_through_socks
from tests.sshgate.stage import Stage, stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.docker, pytest.mark.ci]
# Stands for an editor's server: a page on the loopback at a port of its own choice, which it writes into its log.
_SERVER = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"editor " + self.path.encode())
    def log_message(self, *told):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
print("Extension host agent listening on", server.server_address[1], flush=True)
server.serve_forever()
"""
# The sequence that Remote-SSH documents: look at the machine, unpack the server, start it so that it outlives the
# connection, wait for its port, say it between marks, and stay for as long as the tunnel is wanted.
_INSTALL = """
echo "7f3a: running"
uname -sm
test -n "$HOME" && mkdir -p "$HOME/.vscode-server/bin/abc" && cd "$HOME/.vscode-server/bin/abc" || exit 9
if ! test -f server.py; then
  (command -v wget || command -v curl) >/dev/null && echo "7f3a: can-download"
  tar -xf "$HOME/vscode-server.tar" || exit 10
fi
if ! test -f pid || ! kill -0 "$(cat pid)" 2>/dev/null; then
  nohup python3 server.py >log 2>&1 </dev/null &
  echo $! >pid
fi
for look in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  port=$(sed -n 's/.*listening on \\([0-9]*\\).*/\\1/p' log)
  test -n "$port" && break
  sleep 0.5
done
test -n "$port" || { ps; ls -l; cat log; } >&2
echo "listeningOn==$port=="
echo "7f3a: end"
cat >/dev/null
"""


@pytest.fixture
def here(backend: DockerBackend) -> Iterator[Stage]:  # noqa: F811
    with stage(backend) as found:
        yield found


@pytest.fixture
def session(cast: Cast, here: Stage, engine: APIClient, new_spec: NewSpec) -> ComputeSession:  # noqa: F811
    session = make_running_session(cast.alice, name="train", cluster_size=2)
    spec = new_spec()
    image = ensure_work_image(engine)
    here.run_kernels(session, image=image, deployment=spec.deployment, agent=spec.agent)
    return session


def test_shells_copies_and_repositories(here: Stage, key: Path, session: ComputeSession) -> None:
    typed = b"tty; stty size; python3 -q\nimport os\nprint(os.isatty(0), 6 * 7)\nexit()\nexit 3\n"
    shell = here.run(key, "train", "-tt", given=typed)
    assert shell.returncode == 3 and b"/dev/pts/" in shell.stdout and b"True 42" in shell.stdout, shell
    for code in (0, 1, 42, 255):
        assert here.run(key, "train", f"python3 -c 'raise SystemExit({code})'").returncode == code
    for name in ("main1", "sub1"):
        assert here.run(key, f"train+{name}", "hostname").stdout == f"{name}\n".encode()
    local = here.folder / "local"
    local.write_bytes(os.urandom(2_000_000))
    for old in ([], ["-O"]):
        assert here.copy("scp", key, *old, str(local), "train+sub1@127.0.0.1:sent").returncode == 0
        assert here.copy("scp", key, *old, "train+sub1@127.0.0.1:sent", str(here.folder / "back")).returncode == 0
        assert (here.folder / "back").read_bytes() == local.read_bytes()
    assert here.run(key, "train+main1", "test -e sent").returncode == 1
    _push_and_clone(here, key)


def _push_and_clone(here: Stage, key: Path) -> None:
    assert here.run(key, "train", "git init -q --bare work.git").returncode == 0
    shell = " ".join(["ssh", *here.options(key)])
    environ = os.environ | {"GIT_SSH_COMMAND": shell, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(here.folder)}
    address, own = f"ssh://train@127.0.0.1:{here.port}/home/work/work.git", here.folder / "own"

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            env=environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    git("init", "-q", "-b", "main", str(own))
    (own / "big").write_bytes(os.urandom(3_000_000))
    git("-C", str(own), "add", ".")
    git("-C", str(own), "commit", "-qm", "one")
    git("-C", str(own), "push", "-q", address, "main")
    git("clone", "-q", "-b", "main", address, str(here.folder / "clone"))
    assert (here.folder / "clone" / "big").read_bytes() == (own / "big").read_bytes()
    assert here.run(key, "train", "git -C work.git rev-parse main").stdout.decode().strip() == git(
        "-C", str(own), "rev-parse", "main"
    )


def test_rsync_copies_changes_alone(here: Stage, key: Path, session: ComputeSession) -> None:
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed on this machine, so neither the client nor the kit has it")
    tree = here.folder / "tree"
    tree.mkdir()
    for number in range(200):
        (tree / f"file {number}").write_bytes(os.urandom(1000))
    remote = " ".join(["ssh", *here.options(key), "-p", str(here.port)])

    def copy(*words: str) -> str:
        command = ["rsync", "-ai", "--delete", "-e", remote, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert copy(f"{tree}/", "train@127.0.0.1:tree/").count("<f+++") == 200
    assert copy(f"{tree}/", "train@127.0.0.1:tree/") == ""
    (tree / "file 7").unlink()
    (tree / "file 8").write_bytes(b"new")
    assert sorted(copy(f"{tree}/", "train@127.0.0.1:tree/").split("\n")[:2])[0].startswith("*deleting")
    assert here.run(key, "train", "cat 'tree/file 8'; ls tree | wc -l").stdout.split() == [b"new199"]


def test_an_editor_starts_its_server_and_comes_back_to_it(here: Stage, key: Path, session: ComputeSession) -> None:
    """Remote-SSH's documented sequence, twice: the server is copied by scp as where sessions have no network."""
    (here.folder / "server.py").write_text(_SERVER)
    subprocess.run(["tar", "-C", here.folder, "-cf", here.folder / "vscode-server.tar", "server.py"], check=True)
    assert here.copy("scp", key, str(here.folder / "vscode-server.tar"), "train@127.0.0.1:").returncode == 0
    port = _connect_editor(here, key)
    assert _connect_editor(here, key) == port  # the second time finds the server of the first
    local = free_port()
    forwarding = subprocess.Popen(here.ssh(key, "train", "-N", "-L", f"127.0.0.1:{local}:localhost:{port}"))
    try:
        assert b"editor /" in page_of(local)
    finally:
        forwarding.kill()
        forwarding.wait(patient(10))


def _connect_editor(here: Stage, key: Path) -> int:
    """Connect as the editor does, use its server through the proxy, and leave without a word; returns the port."""
    dynamic = free_port()
    *words, address = here.ssh(key, "train", ConnectTimeout="15")
    tunnel = subprocess.Popen(
        [*words, "-T", "-D", f"127.0.0.1:{dynamic}", address, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert tunnel.stdin is not None and tunnel.stdout is not None
    with tunnel.stdin, tunnel.stdout:
        tunnel.stdin.write(_INSTALL.encode())
        tunnel.stdin.flush()
        said: list[str] = []
        while said[-1:] != ["7f3a: end"]:
            line = tunnel.stdout.readline().decode()
            assert line, said
            said.append(line.strip())
        assert said[0] == "7f3a: running" and said[1].startswith("Linux ")
        port = int(said[-2].removeprefix("listeningOn==").removesuffix("=="))
        for path in ("/version", "/socket"):
            assert f"editor {path}".encode() in page_through_socks(dynamic, "127.0.0.1", port, path)
        assert page_through_socks(dynamic, "169.254.169.254", 80) == b""
        tunnel.kill()
        tunnel.wait(patient(10))
    return port
