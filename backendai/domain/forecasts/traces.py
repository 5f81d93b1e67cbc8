"""Reads recorded jobs for a replay: of this platform, or from files of others. Files are read line by line."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils.dateparse import parse_datetime

from backendai.base.core.errors import UserError
from backendai.base.core.slots import MILLI, Slots, parse_size
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.scheduler.forecasts.replay import Job

MOST_JOBS = 1_000_000
_SWF_FIELDS = 18
_LENGTH = re.compile(r"^(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)(?:\.\d+)?$")
_GPUS = re.compile(r"gres/gpu[^=,]*=(\d+)")
_MEMORY = re.compile(r"(?:^|,)mem=([0-9.]+[KMGT]?)")


def own_jobs(group: ResourceGroup, since: datetime) -> Iterator[Job]:
    """Yield the ended sessions of a group that were launched since then, numbered by their ids. One query, read in
    parts."""
    rows = ComputeSession.objects.filter(resource_group=group, created_at__gte=since, ended_at__isnull=False)
    rows = rows.exclude(started_at=None).select_related("owner").order_by("created_at", "pk")
    for row in rows.iterator(chunk_size=1000):
        submitted = max(row.created_at, row.starts_at or row.created_at)
        assert row.started_at is not None and row.ended_at is not None
        length = max(row.ended_at - row.started_at, timedelta(0))
        limit, priority = row.batch_timeout, row.priority
        kernels = row.cluster_size if row.total_slots is None else 1
        slots = row.kernel_slots if row.total_slots is None else row.total
        yield Job(row.pk.int, row.owner.email, submitted, length, slots, kernels, limit, priority)


def swf_jobs(lines: Iterable[str]) -> Iterator[Job]:
    """Yield the jobs of a trace in the Standard Workload Format. Jobs without a length or processors are left out."""
    began = datetime(2000, 1, 1, tzinfo=UTC)
    for place, line in enumerate(lines, 1):
        if line.startswith(";"):
            name, _, value = line[1:].partition(":")
            if name.strip() == "UnixStartTime" and value.strip().isdigit():
                began = datetime.fromtimestamp(int(value), UTC)
            continue
        fields = line.split()
        if not fields:
            continue
        numbers = [_number(field, place) for field in fields]
        if len(numbers) < _SWF_FIELDS:
            raise _wrong(place, "{found} fields instead of 18", found=len(numbers))
        length, processors = numbers[3], max(numbers[4], numbers[7])
        if length < 0 or processors < 1 or numbers[1] < 0:
            continue
        memory = max(numbers[9], 0) * 1024 * processors
        slots = Slots({"cpu": int(processors) * MILLI, "mem": int(memory) * MILLI})
        limit = timedelta(seconds=numbers[8]) if numbers[8] > 0 else None
        submitted = began + timedelta(seconds=numbers[1])
        yield Job(place, str(int(numbers[11])), submitted, timedelta(seconds=length), slots, 1, limit)


def sacct_jobs(lines: Iterable[str]) -> Iterator[Job]:
    """Yield the jobs of ``sacct --parsable2`` with JobID, User, Submit, Elapsed, AllocTRES or ReqTRES, NNodes, and
    Timelimit where it is. Steps, and jobs that never ran, are left out."""
    for place, row in enumerate(csv.DictReader(lines, delimiter="|"), 2):
        _need(row, ("JobID", "User", "Submit", "Elapsed"), place)
        length = _length(row["Elapsed"], place)
        tres = row.get("AllocTRES") or row.get("ReqTRES") or ""
        if "." in row["JobID"] or not length or "cpu=" not in tres:
            continue
        nodes = max(int(row.get("NNodes") or 1), 1)
        cpus = int(tres.partition("cpu=")[2].partition(",")[0])
        found = _MEMORY.search(tres)
        gpus = sum(map(int, _GPUS.findall(tres)[:1]))
        memory = parse_size(found[1].lower(), field="mem") if found else 0
        whole = {"cpu": cpus * MILLI, "mem": memory * MILLI, "cuda.device": gpus * MILLI}
        slots = Slots({name: amount // nodes for name, amount in whole.items()})
        limit = _length(row.get("Timelimit") or "", place) or None
        yield Job(place, row["User"], _time(row["Submit"], place), length, slots, nodes, limit)


def csv_jobs(lines: Iterable[str]) -> Iterator[Job]:
    """Yield the jobs of a CSV file with ``user``, ``submitted`` (ISO 8601), ``seconds``, and amounts in columns named
    after slots (``cpu``, ``mem``, ``cuda.device``); ``kernels`` and ``limit_seconds`` where they are."""
    known = {"user", "submitted", "seconds", "kernels", "limit_seconds", "priority"}
    for place, row in enumerate(csv.DictReader(lines), 2):
        _need(row, ("user", "submitted", "seconds"), place)
        amounts = {name: value for name, value in row.items() if name and name not in known and value}
        length = timedelta(seconds=_number(row["seconds"], place))
        limit = timedelta(seconds=_number(row["limit_seconds"], place)) if row.get("limit_seconds") else None
        kernels, priority = int(row.get("kernels") or 1), int(row.get("priority") or 10)
        submitted = _time(row["submitted"], place)
        yield Job(place, row["user"], submitted, length, Slots.parse(amounts), kernels, limit, priority)


FORMATS: Mapping[str, Callable[[Iterable[str]], Iterator[Job]]] = {
    "swf": swf_jobs,
    "sacct": sacct_jobs,
    "csv": csv_jobs,
}


def _need(row: Mapping[str, str], names: Iterable[str], place: int) -> None:
    if missing := [name for name in names if not row.get(name)]:
        raise _wrong(place, "{missing} missing", missing=", ".join(missing))


def _number(text: str, place: int) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _wrong(place, "{text} is not a number", text=repr(text[:40])) from None
    if not -1e12 < number < 1e12:
        raise _wrong(place, "{text} is out of range", text=text[:40])
    return number


def _length(text: str, place: int) -> timedelta:
    if text in ("", "UNLIMITED", "Partition_Limit"):
        return timedelta(0)
    found = _LENGTH.match(text)
    if found is None:
        raise _wrong(place, "{text} is not a length such as 1-02:03:04", text=repr(text[:40]))
    return timedelta(**{name: int(value) for name, value in found.groupdict(default="0").items()})


def _time(text: str, place: int) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise _wrong(place, "{text} is not a time such as 2026-01-31T12:00:00", text=repr(text[:40]))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _wrong(place: int, problem: str, **values: Any) -> UserError:
    return UserError("Line {place}: " + problem + ".", place=place, **values, code="wrong-trace")
