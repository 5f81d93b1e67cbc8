"""The people of the demonstration: they launch, end and ask for sessions as long as the process runs."""

from __future__ import annotations

import io
import logging
import random
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import urllib3
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from backendai.base.core.errors import BackendAIError
from backendai.domain.accounts.models import Project, User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import LIVE, Status
from backendai.domain.pipelines.services.creating import RunSpec, create_run
from backendai.domain.serving.models import Endpoint
from backendai.domain.serving.presentation import url_of
from backendai.domain.serving.services.endpoints import create_endpoint
from backendai.domain.serving.services.tokens import create_token
from backendai.domain.serving.spec import EndpointSpec, RevisionSpec
from backendai.domain.storage.file_streams import send_folder
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services import create_folder
from backendai.domain.storage.status import FolderStatus
from backendai.ops.demo.lab import CROWD, FILES, GPU, IDLE, PEOPLE, SLICE, WORK, Work

logger = logging.getLogger(__name__)

_STEP_SECONDS, _RUN_EVERY, _REQUESTS_PER_SECOND = 3.0, timedelta(minutes=12), 3.0
_SECONDS = "SIMULATED_SECONDS"  # how long a session of theirs lasts, in its environment
_SWEEP = {"lr": [0.3, 0.1, 0.03, 0.01], "seed": [1, 2, 3]}


class Crowd:
    """Everybody at work. ``speed``: how many times faster than usual sessions end and follow each other."""

    def __init__(self, *, seed: int, speed: float) -> None:
        self._chance, self._speed = random.Random(seed), speed
        team = {name: set(members) for name, members in PEOPLE.items()}
        people = User.objects.filter(projects__name__in=team).prefetch_related("projects")
        self._people: dict[str, list[User]] = {name: [] for name in PEOPLE}
        for person in people.order_by("email").distinct():
            for project in person.projects.all():
                if person.full_name in team.get(project.name, ()):
                    self._people[project.name].append(person)
        self._next_run: datetime | None = None

    def leader(self, project: str) -> User:
        """The first person of a project."""
        return next(one for one in self._people[project] if one.full_name == PEOPLE[project][0])

    def open_scene(self, now: datetime) -> bool:
        """Write what stands from the beginning: folders, endpoints, and sessions that wait for something. Returns
        False while the file server has not made the folders: call it again then."""
        if Endpoint.objects.exists():
            return True
        jonas, amara = self.leader("vision"), self.leader("language")
        daniel, lesson = self.leader("class"), Project.objects.get(name="class")
        places = (("street-scenes", jonas, None), ("corpus", amara, None), ("homework", daniel, lesson))
        folders = [
            Folder.objects.filter(name=name).first() or create_folder(owner, name=name, project=project, now=now)
            for name, owner, project in places
        ]
        if not all(folder.status == FolderStatus.READY for folder in folders):
            return False
        for folder in folders:
            send_folder(folder, [_archive(FILES)])
        self._endpoint(jonas, "detector", 2)
        self._endpoint(amara, "chat-8b", 3)
        self._launch(IDLE, amara)
        train = self._launch(WORK[0], jonas)
        report = {"image": "jax", "resource_group": "cpu", "resources": {"cpu": "4", "mem": "8g"}, "type": "batch"}
        later = now + timedelta(hours=9)
        self._ask(jonas, **report, name="nightly-report", startup_command="python report.py", starts_at=later)
        if train is not None:
            after = {"startup_command": "python compare.py", "depends_on": [str(train.pk)]}
            self._ask(jonas, **report, name="compare-results", **after)
        return True

    def step(self, now: datetime) -> None:
        """Fill each group up to its crowd, end what has lasted long enough, and start a run from time to time."""
        rows = ComputeSession.objects.filter(resource_group__name__in=CROWD, status__in=LIVE, environ__has_key=_SECONDS)
        live = list(rows.select_related("owner", "resource_group"))
        counts = Counter(one.resource_group.name for one in live)
        for group, most in CROWD.items():
            kinds = [work for work in WORK if work.group == group]
            for _ in range(most - counts[group]):
                work = self._chance.choices(kinds, [one.weight for one in kinds])[0]
                self._launch(work, self._chance.choice(self._people[work.project]))
        for one in live:
            if one.status == Status.RUNNING and not one.kind.runs_program and self._is_over(one, now):
                terminate_session(one, one.owner)
        if self._next_run is None or now >= self._next_run:
            self._next_run = now + _RUN_EVERY / self._speed
            self._sweep(now)

    def _is_over(self, session: ComputeSession, now: datetime) -> bool:
        lasts = timedelta(seconds=float(session.environ[_SECONDS]))
        return session.started_at is not None and session.started_at + lasts <= now

    def _launch(self, work: Work, person: User) -> ComputeSession | None:
        seconds = 60 * self._chance.uniform(*work.minutes) / self._speed
        return self._ask(
            person,
            name=f"{work.name}-{self._chance.randrange(1000, 10_000)}",
            image=work.image,
            type=work.session_type,
            resource_group=work.group,
            project=self._project(work.project),
            resources=work.resources,
            startup_command=work.command,
            batch_timeout=timedelta(seconds=round(1.3 * seconds)) if work.command else None,
            environ={_SECONDS: f"{seconds:.0f}", "SIMULATED_LOAD": f"{work.load:.2f}"},
        )

    def _ask(self, person: User, **request: Any) -> ComputeSession | None:
        request["session_type"] = request.pop("type")
        try:
            return create_session(person, SessionSpec(**request))
        except BackendAIError as error:  # a limit of this person, or a name that is taken
            logger.debug("%s did not launch: %s", person.email, error.message)
            return None

    def _project(self, name: str) -> str:
        return str(Project.objects.get(name=name).pk)

    def _endpoint(self, owner: User, name: str, replicas: int) -> None:
        revision = RevisionSpec("vllm", f"vllm serve /models/{name} --port 8000", resources=SLICE)
        most = replicas + 2
        spec = EndpointSpec(name, revision, resource_group="shared-gpus", minimum=replicas, maximum=most)
        create_endpoint(owner, spec)

    def _sweep(self, now: datetime) -> None:
        leader = self.leader("vision")
        seconds = f"{60 * self._chance.uniform(1, 3) / self._speed:.0f}"
        train = {"startup_command": "python train.py", "matrix": _SWEEP, "at_once": 3, "resources": GPU}
        steps = {
            "prepare": {"startup_command": "python prepare.py", "resource_group": "cpu"},
            "train": {**train, "after": ["prepare"], "resource_group": "h100"},
            "report": {"after": ["train"], "startup_command": "python report.py", "resource_group": "cpu"},
        }
        usual = {"image": "pytorch", "resources": {"cpu": "4", "mem": "16g"}, "environ": {"SIMULATED_SECONDS": seconds}}
        document = {"kind": "pipeline", "defaults": usual, "steps": steps}
        try:
            create_run(leader, RunSpec(document=document, name=f"sweep-{now:%H%M}"), now=now)
        except BackendAIError as error:
            logger.debug("no sweep: %s", error.message)


def run(ended: threading.Event, *, seed: int, speed: float) -> None:
    """Let the people work until ``ended`` is set. What fails is logged and tried again."""
    crowd = Crowd(seed=seed, speed=speed)
    requests = threading.Thread(target=_send_requests, args=(ended,), name="requests", daemon=True)
    is_open = False
    while not ended.is_set():
        close_old_connections()
        try:
            if not is_open and (is_open := crowd.open_scene(timezone.now())):
                requests.start()
            crowd.step(timezone.now())
        except Exception:
            logger.exception("the people of the demonstration rest")
        ended.wait(_STEP_SECONDS)


def _send_requests(ended: threading.Event) -> None:
    """Ask the endpoints through the app proxy, more and less by turns."""
    address = f"http://{settings.APPS_HOST}:{settings.APPS_PORT}/v1/completions"
    pool, doors = urllib3.PoolManager(retries=False, timeout=5.0, num_pools=2), _doors()
    close_old_connections()
    started_at, chance = time.monotonic(), random.Random(0)
    while not ended.wait(chance.expovariate(_REQUESTS_PER_SECOND)):
        part_of_cycle = (time.monotonic() - started_at) % 600 / 600  # fewer requests towards its end
        if not doors or chance.random() < part_of_cycle / 2:
            continue
        headers = {**chance.choice(doors), "X-Sleep": f"{chance.uniform(0.05, 0.4):.2f}"}
        try:
            pool.request("POST", address, body=b'{"prompt": "Hello"}', headers=headers)
        except urllib3.exceptions.HTTPError as error:
            logger.debug("an endpoint did not answer: %s", error)


def _doors() -> list[Mapping[str, str]]:
    """Return the headers that open each endpoint, with a new token."""
    found: list[Mapping[str, str]] = []
    for endpoint in Endpoint.objects.select_related("owner"):
        endpoint.tokens.filter(name="demo").delete()
        _, text = create_token(endpoint, endpoint.owner, "demo")
        found.append({"Host": urlsplit(url_of(endpoint)).netloc, "Authorization": f"Bearer {text}"})
    return found


def _archive(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(text.encode()), int(time.time())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()
