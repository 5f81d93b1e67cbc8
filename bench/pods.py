"""What the agent adds to the start of a pod: the same pod with and without it, taking turns on one cluster.

bin/bench pods [--json] [--rounds N] [--at-once N] [--kubeconfig FILE] [--namespace NAME] [--image REFERENCE]

``ratio_p50``: from the order until the pod runs, through the agent and by the API alone; ``at_once_ratio``: until the
last of so many runs. ``list_1000_ms``: a pass over a thousand pods of a scripted API. ``idle_requests_per_minute``:
what an agent without kernels asks. The cluster is that of ``bin/kubernetes-bed up`` unless another one is named.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from backendai.agent.backends.kubernetes.api.access import ApiAccess, find_access
from backendai.agent.backends.kubernetes.api.names import AgentIdentity
from backendai.agent.backends.kubernetes.backend import KubernetesBackend
from backendai.agent.backends.kubernetes.pod import pod_body
from backendai.agent.backends.kubernetes.state import runs
from backendai.agent.settings.kubernetes import PoolSettings
from backendai.base.wire.messages import KernelSpec
from bench._command import command, show
from tests.agent.kubernetes_fake import Cluster, serving

_BED = Path(__file__).resolve().parents[1] / "bin/kubernetes-bed"
_IMAGE = "local/backendai-test:tiny"
_PODS, _PASSES = 1000, 11


def main() -> None:
    """Measure and print."""
    numbers = {"rounds": (10, "starts in turn on each side"), "at_once": (20, "starts at once on each side")}
    parser = command("pods", __doc__, numbers)
    parser.add_argument("--kubeconfig", type=Path, help="of the cluster; its images must be there")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--image", default=_IMAGE)
    options = parser.parse_args()
    config = options.kubeconfig or Path(subprocess.check_output([_BED, "kubeconfig"], text=True).strip())
    with tempfile.TemporaryDirectory() as folder:
        pool = PoolSettings(namespace=options.namespace, reach="direct")
        backend = KubernetesBackend(Path(folder), find_access(config), pool, deployment="bench", agent="n1")
        try:
            backend.setup()
            figures = starts(backend, options.image, options.rounds, options.at_once)
        finally:
            for kernel in backend.kernels():
                backend.remove(kernel.kernel_id)
            backend.sweep(set())
            backend.close()
        figures |= {"list_1000_ms": list_ms(Path(folder)), "idle_requests_per_minute": idle_requests(Path(folder))}
    show(options, figures)


def starts(backend: KubernetesBackend, image: str, rounds: int, at_once: int) -> dict[str, Any]:
    """Return the figures of starts in turn and at once, on both sides."""
    agent, bare = list[float](), list[float]()
    for _ in range(rounds):
        for times, start in ((bare, _bare), (agent, _through_agent)):
            times.append(_seconds(lambda start=start: start(backend, _spec(image))))
            _remove_all(backend)
    together = {}
    for name, start in (("bare", _bare), ("agent", _through_agent)):
        specs = [_spec(image) for _ in range(at_once)]
        with ThreadPoolExecutor(at_once) as threads:
            together[name] = _seconds(
                lambda start=start, specs=specs, threads=threads: list(  # type: ignore[misc]
                    threads.map(lambda spec: start(backend, spec), specs)
                )
            )
        _remove_all(backend)
    return {
        "ratio_p50": round(statistics.median(agent) / statistics.median(bare), 2),
        "agent_s_p50": round(statistics.median(agent), 2),
        "bare_s_p50": round(statistics.median(bare), 2),
        "at_once_ratio": round(together["agent"] / together["bare"], 2),
        "at_once_agent_s": round(together["agent"], 2),
        "at_once_bare_s": round(together["bare"], 2),
        "rounds": rounds,
        "at_once": at_once,
    }


def list_ms(folder: Path) -> float:
    """Return the milliseconds of one pass over a thousand pods; the list is ready before it is asked for."""
    answer = _list_of_pods()
    with _answering(answer) as address:
        backend = _on_paper(folder, address)
        times = [_seconds(backend.kernels) for _ in range(_PASSES)]
        assert len(backend.kernels()) == _PODS
        backend.close()
    return round(1e3 * statistics.median(times), 1)


def _list_of_pods() -> bytes:
    """Return what an API answers; its objects are gone by then, as those of the API are not the agent's garbage."""
    cluster, ours = Cluster(), AgentIdentity("bench", "n1")
    pods = [cluster.create("pods", pod_body(_spec(_IMAGE), PoolSettings(), ours))[1] for _ in range(_PODS)]
    return json.dumps({"metadata": {"resourceVersion": str(cluster.version)}, "items": pods}).encode()


@contextmanager
def _answering(answer: bytes) -> Iterator[str]:
    """Give the address of a server with one answer, in a process of its own."""
    heard, told = multiprocessing.Pipe()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    def serve() -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        told.send(server.server_port)
        server.serve_forever()

    process = multiprocessing.get_context("fork").Process(target=serve, daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{heard.recv()}"
    finally:
        process.terminate()
        process.join()


def idle_requests(folder: Path) -> float:
    """Return how often an agent without kernels asks in a minute of its loops, by a clock of their own."""
    cluster, now, minutes = Cluster(), 0.0, 10
    with serving(cluster) as address:
        backend = _on_paper(folder, address, clock=lambda: now)
        backend.setup()
        for second in range(0, 60 * minutes, 5):
            now = float(second)
            backend.kernels()
            backend.pool.gpus()
            if second % 30 == 0:
                for look in (backend.capacity, backend.notes, backend.images, backend.engine, backend.fault):
                    look()
                backend.sweep(set())
        asked = len(cluster.asked)
        backend.close()
    return round(asked / minutes, 1)


def _on_paper(folder: Path, address: str, **more: Any) -> KubernetesBackend:
    access = ApiAccess(address, "lab", None, lambda: "")
    return KubernetesBackend(folder, access, PoolSettings(), deployment="bench", agent="n1", **more)


def _spec(image: str) -> KernelSpec:
    slots = {"cpu": "0.05", "mem": str(32 * 2**20)}
    names = {"deployment": "bench", "agent": "n1", "session_name": "bench", "image": image}
    return KernelSpec(**names, kernel_id=uuid4(), session_id=uuid4(), generation=1, slots=slots)


def _through_agent(backend: KubernetesBackend, spec: KernelSpec) -> None:
    backend.start(spec)


def _bare(backend: KubernetesBackend, spec: KernelSpec) -> None:
    """Create the same pod and wait for it as a plain client does: by one watch of it."""
    api, body = backend.api, pod_body(spec, PoolSettings(), backend._ours)
    made = api.ask("POST", api.path("pods"), body)
    name = body["metadata"]["name"]
    query = {
        "fieldSelector": f"metadata.name={name}",
        "watch": "1",
        "resourceVersion": made["metadata"]["resourceVersion"],
    }
    with api.lines(api.path("pods"), query, silence=60.0) as events:
        for event in events:
            if runs(event["object"]):
                return
    raise SystemExit(f"{name} does not run")


def _remove_all(backend: KubernetesBackend) -> None:
    kernels = backend.kernels()
    with ThreadPoolExecutor(max(len(kernels), 1)) as threads:
        list(threads.map(lambda kernel: backend.remove(kernel.kernel_id), kernels))


def _seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
