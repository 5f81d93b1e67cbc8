"""The kinds of faults. Each inflicts itself for so many seconds, lifts itself, and says in a word what it struck."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

import psutil
import psycopg

from tests.chaos.nodes import DockerNodes, Missed, NativeNodes
from tests.chaos.relay import Relay
from tests.chaos.rig import AGENT_NAMES, Rig
from tests.chaos.schedule import Kind

Inflict = Callable[[Rig, float, random.Random], str]
Way = Callable[[Rig], Relay | None]
_STEPS = (-3600, -600, -90, -20, 20, 90, 600, 3600)
_ROLES = ("web", "control", "beat", "appproxy")
_OF_CONTROL = "celery --quiet -A backendai.celery worker -Q control -P threads -c 4 -n second@%h --loglevel WARNING"
_SECOND_BEAT = "celery --quiet -A backendai.celery beat --scheduler backendai.ops.beat:SteadyScheduler"


def catalogue(rig: Rig) -> dict[Kind, Inflict]:
    """Return what can be inflicted on this rig."""
    found: dict[Kind, Inflict] = {}
    for role in (*_ROLES, "agent", "parent", *(["valkey"] if rig.redis is None else [])):
        found[Kind(f"kill-{role}")] = partial(_kill, role)
    for role in (*_ROLES, "agent", *(["valkey"] if rig.redis is None else [])):
        found[Kind(f"freeze-{role}", 1.0, 12.0)] = partial(_freeze, role)
    found |= {
        Kind("kill-supervisor", one_in=2): _kill_supervisor,
        Kind("lose-agent", 66.0, 80.0, one_in=3): partial(_freeze, "agent"),
        Kind("flush-broker"): _flush_broker,
        Kind("double-ticks"): _double_ticks,
        Kind("second-control", 8.0, 15.0, one_in=2): partial(_second, _OF_CONTROL),
        Kind("second-beat", 8.0, 15.0, one_in=3): partial(_second, _SECOND_BEAT),
        Kind("free-leases"): _free_leases,
        Kind("age-agents"): _age_agents,
        Kind("cut-nodes", 1.0, 12.0): partial(_cut, lambda rig: rig.to_portal),
        Kind("stall-nodes", 1.0, 12.0): partial(_stall, lambda rig: rig.to_portal),
        Kind("slow-nodes", 2.0, 10.0): partial(_slow, lambda rig: rig.to_portal),
        Kind("lock-database", 1.0, 8.0): _lock_database,
    }
    if rig.clock.can_step:
        found[Kind("step-clock", 4.0, 15.0)] = _step_clock
    if rig.disk:
        found[Kind("fill-disk", 2.0, 8.0)] = _fill_disk
    return found | (_of_servers() if rig.postgres else {}) | _of_nodes(rig)


def _of_nodes(rig: Rig) -> dict[Kind, Inflict]:
    if isinstance(rig.nodes, NativeNodes):
        return {
            Kind("kill-kernel"): partial(_kill_kernel, rig.nodes),
            Kind("kill-kernel-supervisor"): partial(_kill_runner, rig.nodes),
        }
    return {
        Kind("kill-container"): partial(_kill_container, rig.nodes),
        Kind("remove-container"): partial(_remove_container, rig.nodes),
        Kind("kill-engine"): partial(_kill_engine, rig.nodes),
        Kind("freeze-engine", 1.0, 10.0): partial(_freeze_engine, rig.nodes),
    }


def _of_servers() -> dict[Kind, Inflict]:
    return {
        Kind("kill-postgres"): _kill_postgres,
        Kind("freeze-postgres", 1.0, 10.0): partial(_freeze_server, "postgres"),
        Kind("terminate-backends"): _terminate_backends,
        Kind("cut-database", 1.0, 8.0): partial(_cut, lambda rig: rig.to_database),
        Kind("stall-database", 1.0, 8.0): partial(_stall, lambda rig: rig.to_database),
        Kind("kill-redis"): _kill_redis,
        Kind("freeze-redis", 1.0, 10.0): partial(_freeze_server, "redis"),
        Kind("cut-broker", 1.0, 8.0): partial(_cut, lambda rig: rig.to_broker),
    }


def _kill(role: str, rig: Rig, seconds: float, chance: random.Random) -> str:
    name = _one_of(role, chance)
    pid = rig.pid_of(name)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return name


def _freeze(role: str, rig: Rig, seconds: float, chance: random.Random) -> str:
    name = _one_of(role, chance)
    process = psutil.Process(rig.pid_of(name))
    with suppress(psutil.NoSuchProcess):
        process.suspend()
        time.sleep(seconds)
        process.resume()
    return name


def _one_of(role: str, chance: random.Random) -> str:
    return chance.choice(AGENT_NAMES) if role == "agent" else role


def _kill_supervisor(rig: Rig, seconds: float, chance: random.Random) -> str:
    if not rig.platform.is_up:
        raise Missed("no supervisor")
    with suppress(ProcessLookupError):
        os.kill(rig.platform.pid, signal.SIGKILL)
    return "and all that it watches over"


def _flush_broker(rig: Rig, seconds: float, chance: random.Random) -> str:
    rig.flush_broker()
    return "all hints"


def _double_ticks(rig: Rig, seconds: float, chance: random.Random) -> str:
    times = chance.randint(2, 6)
    rig.tick(times)
    return f"{times} of each"


def _second(command: str, rig: Rig, seconds: float, chance: random.Random) -> str:
    process = rig.spawn(*command.split())
    try:
        time.sleep(seconds)
        early = process.poll()
    finally:
        process.kill()
        process.wait()
    return "" if early is None else f"ended by itself with {early}"


def _free_leases(rig: Rig, seconds: float, chance: random.Random) -> str:
    held = rig.change_rows("UPDATE cluster_passlease SET owner = '' WHERE owner <> ''")
    return f"{held} held"


def _age_agents(rig: Rig, seconds: float, chance: random.Random) -> str:
    earlier = "strftime('%Y-%m-%d %H:%M:%f', last_seen_at, '-10 minutes')"
    if rig.postgres:
        earlier = "last_seen_at - interval '10 minutes'"
    agents = rig.change_rows(f"UPDATE cluster_agent SET last_seen_at = {earlier}")
    return f"{agents} agents"


def _kill_kernel(nodes: NativeNodes, rig: Rig, seconds: float, chance: random.Random) -> str:
    kernel, processes = nodes.victim(chance)
    rig.killed_kernels.add(kernel)
    for process in processes[:-1]:
        with suppress(psutil.Error):
            process.kill()
    return str(kernel)


def _kill_runner(nodes: NativeNodes, rig: Rig, seconds: float, chance: random.Random) -> str:
    kernel, processes = nodes.victim(chance)
    rig.killed_kernels.add(kernel)
    with suppress(psutil.Error):
        processes[-1].kill()
    return str(kernel)


def _kill_container(nodes: DockerNodes, rig: Rig, seconds: float, chance: random.Random) -> str:
    kernel = nodes.victim(chance)
    rig.killed_kernels.add(kernel)
    rig.platform.engine.kill(f"krn-{kernel}")
    return str(kernel)


def _remove_container(nodes: DockerNodes, rig: Rig, seconds: float, chance: random.Random) -> str:
    kernel = nodes.victim(chance)
    rig.killed_kernels.add(kernel)
    rig.platform.engine.remove_container(f"krn-{kernel}", force=True)
    return str(kernel)


def _kill_engine(nodes: DockerNodes, rig: Rig, seconds: float, chance: random.Random) -> str:
    if not nodes.engine.is_up:
        raise Missed("no engine")
    nodes.engine.kill()
    return "and its containerd"


def _freeze_engine(nodes: DockerNodes, rig: Rig, seconds: float, chance: random.Random) -> str:
    family = nodes.engine.family()
    for process in family:
        with suppress(psutil.Error):
            process.suspend()
    time.sleep(seconds)
    for process in family:
        with suppress(psutil.Error):
            process.resume()
    return f"{len(family)} processes"


def _cut(which: Way, rig: Rig, seconds: float, chance: random.Random) -> str:
    relay = which(rig)
    assert relay
    relay.cut()
    time.sleep(seconds)
    relay.mend()
    return ""


def _stall(which: Way, rig: Rig, seconds: float, chance: random.Random) -> str:
    relay = which(rig)
    assert relay
    relay.stall()
    time.sleep(seconds)
    relay.mend()
    return ""


def _slow(which: Way, rig: Rig, seconds: float, chance: random.Random) -> str:
    relay, delay = which(rig), chance.uniform(0.2, 2.0)
    assert relay
    relay.slow_down(delay)
    time.sleep(seconds)
    relay.mend()
    return f"{delay:.1f} s each way"


def _lock_database(rig: Rig, seconds: float, chance: random.Random) -> str:
    if rig.postgres:
        table = chance.choice(("compute_computesession", "compute_kernel", "compute_allocation", "cluster_agent"))
        with psycopg.connect(rig.postgres.url, connect_timeout=2, options="-c lock_timeout=5s") as connection:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            time.sleep(seconds)
            connection.rollback()
        return table
    file = rig.platform.data / "portal.sqlite3"
    with closing(sqlite3.connect(file, timeout=5, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)
        connection.execute("ROLLBACK")
    return "every write"


def _step_clock(rig: Rig, seconds: float, chance: random.Random) -> str:
    step = chance.choice(_STEPS)
    rig.clock.set_ahead(step)
    time.sleep(seconds)
    rig.clock.set_ahead(0)
    return f"{step:+} s and back"


def _fill_disk(rig: Rig, seconds: float, chance: random.Random) -> str:
    assert rig.disk is not None
    filler = rig.disk / "filler"
    until = time.monotonic() + seconds
    with filler.open("wb") as file:
        try:
            while time.monotonic() < until:  # what others free is taken, too
                free = os.statvfs(rig.disk).f_bavail * os.statvfs(rig.disk).f_frsize
                with suppress(OSError):
                    if free:
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free)
                time.sleep(0.05)
        finally:
            filler.unlink()
    return ""


def _kill_postgres(rig: Rig, seconds: float, chance: random.Random) -> str:
    assert rig.postgres
    rig.postgres.kill()
    return ""


def _kill_redis(rig: Rig, seconds: float, chance: random.Random) -> str:
    assert rig.redis
    rig.redis.kill()
    return ""


def _freeze_server(name: str, rig: Rig, seconds: float, chance: random.Random) -> str:
    server = rig.postgres if name == "postgres" else rig.redis
    assert server
    frozen = server.freeze()
    time.sleep(seconds)
    for process in frozen:
        with suppress(psutil.Error):
            process.resume()
    if not frozen:
        raise Missed(f"no {name}")
    return f"{len(frozen)} processes"


def _terminate_backends(rig: Rig, seconds: float, chance: random.Random) -> str:
    others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    assert rig.postgres
    with psycopg.connect(rig.postgres.url, connect_timeout=2) as connection:
        ended = connection.execute(f"SELECT pg_terminate_backend(pid) {others}").fetchall()
    return f"{len(ended)} connections"
