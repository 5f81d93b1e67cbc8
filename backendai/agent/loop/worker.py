"""The agent as a Celery worker: hints arrive as tasks, and the runtime is a step of the worker.

The step belongs to the *worker* blueprint, as the consumer restarts with every lost broker connection. It requires the
pool, so that it stops, and drains, before the pool does.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any
from uuid import UUID

from celery import Celery, bootsteps
from celery.exceptions import SecurityWarning
from celery.worker import state

from backendai.agent.loop.runtime import AgentRuntime
from backendai.agent.portal import hint_transport
from backendai.base.wire.broker.queues import node_queue
from backendai.base.wire.node_jobs import NodeJobOrder

logger = logging.getLogger(__name__)

_THREADS = 2  # tasks only queue orders on the lanes, which limit the work


def run_worker(runtime: AgentRuntime, *, name: str, address: Callable[[], str]) -> int:
    """Run the worker on the agent's own queue until a signal; returns the process's exit status. ``address`` returns
    the broker's address and is called for every connection."""
    worker = _make_worker(runtime, name=name, address=address)
    worker.start()
    # Celery exits with a failure after SIGINT, but Ctrl-C is a normal end.
    was_asked = state.should_stop is not None and state.should_terminate is None
    return 0 if was_asked else int(worker.exitcode or 0)


def _make_worker(runtime: AgentRuntime, *, name: str, address: Callable[[], str]) -> Any:
    warnings.simplefilter("ignore", SecurityWarning)  # engines need root; only JSON is accepted
    hint_transport.use_hints(address)
    app = Celery("agent", set_as_current=False, fixups=[])
    app.conf.update(
        broker_url=hint_transport.URL,
        task_queues=[hint_transport.hint_queue(node_queue(name))],
        # An agent retries its broker for ever; meanwhile it works by sync alone.
        broker_connection_max_retries=None,
        broker_connection_retry_on_startup=True,
        broker_channel_error_retry=True,
        worker_cancel_long_running_tasks_on_connection_loss=True,  # else Celery warns; no task is long
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
    )
    _add_tasks(app, runtime)
    _add_steps(app, runtime)
    return app.Worker(
        hostname=f"agent@{name}",
        pool="threads",
        concurrency=_THREADS,
        queues=[node_queue(name)],
        quiet=True,
        loglevel="INFO",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )


def _add_tasks(app: Celery, runtime: AgentRuntime) -> None:
    @app.task(name="node.start_kernel")
    def start_kernel(kernel_id: str, generation: int) -> None:
        runtime.start_kernel(UUID(kernel_id), generation)

    @app.task(name="node.start_kernels")
    def start_kernels(kernels: list[tuple[str, int]]) -> None:
        for kernel_id, generation in kernels:
            runtime.start_kernel(UUID(kernel_id), generation)

    @app.task(name="node.stop_kernel")
    def stop_kernel(kernel_id: str, generation: int) -> None:
        # Fetch the stop order and its grace from the portal, as hints are not authenticated.
        runtime.sync.poke()

    @app.task(name="node.begin_job")
    def begin_job(kind: str, job_id: str, attempt: int) -> None:
        runtime.begin_job(NodeJobOrder(kind=kind, job_id=UUID(job_id), attempt=attempt))

    @app.task(name="node.sync")
    def sync() -> None:
        runtime.sync.poke()


def _add_steps(app: Celery, runtime: AgentRuntime) -> None:
    class RuntimeStep(bootsteps.StartStopStep):
        requires = ("celery.worker.components:Pool",)

        def start(self, parent: Any) -> None:
            runtime.start()

        def stop(self, parent: Any) -> None:
            runtime.stop()

        def terminate(self, parent: Any) -> None:
            runtime.stop(timeout=0.0)

    class ConnectedStep(bootsteps.StartStopStep):
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def start(self, parent: Any) -> None:
            runtime.connected.set()
            runtime.sync.poke()  # hints may have been lost during the disconnection

        def stop(self, parent: Any) -> None:
            runtime.connected.clear()
            runtime.sync.poke()  # switch to long polls

    app.steps["worker"].add(RuntimeStep)
    app.steps["consumer"].add(ConnectedStep)
