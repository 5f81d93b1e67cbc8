"""What must hold once every fault is lifted, and the table that says how the run was."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psutil
import requests

from tests.chaos.callers import Callers
from tests.chaos.nemesis import Nemesis
from tests.chaos.rig import AGENT_NAMES, Rig
from tests.chaos.users import Launched, User
from tests.patience import until
from tests.system.client import TERMINAL

logger = logging.getLogger("chaos")
CONVERGED_WITHIN = 60.0
_ROLES = {"web", "control", "beat", "appproxy", *AGENT_NAMES}
_KILLED = {"self-terminated", "container-missing", "container-killed", "task-failed", "failed-to-start"}
# Why a session that nobody asked to end may have ended all the same, by the kind of fault that explains it.
_EXPLAINED = {"failed-to-start": {"fill-disk", "kill-kernel", "kill-kernel-supervisor"}}
_EXCEPTION = re.compile(r"^\w+ *\| ((?:[a-zA-Z_]+\.)*[A-Z]\w*(?:Error|Exception|Timeout|Full|Closed)\b:?.{0,90})", re.M)
Body = dict[str, Any]


class Verdict:
    """Looks at the platform after a run. Every method is one demand; an AssertionError says what is not so."""

    def __init__(self, rig: Rig, users: Sequence[User], callers: Callers, nemesis: Nemesis) -> None:
        self._rig, self._users, self._callers, self._nemesis = rig, users, callers, nemesis
        self._client = rig.platform.client
        self.converged_after = self.ended_after = 0.0
        self.ends: Counter[str] = Counter()

    @property
    def launched(self) -> dict[str, Launched]:
        """What the portal has accepted, by id."""
        return {one.id: one for user in self._users for one in user.launched}

    def converges(self) -> None:
        """Everything settles: parts are up, agents heard, and each session is over, runs, or waits with a reason."""
        started_at = time.monotonic()
        until(lambda: not self._log("not up", self._parts()), CONVERGED_WITHIN, "every part is up", last=self._parts)
        until(lambda: all([user.settle() for user in self._users]), CONVERGED_WITHIN, "every launch is answered")
        left = CONVERGED_WITHIN - (time.monotonic() - started_at)
        until(
            lambda: not self._log("not settled", self._unsettled()),
            max(left, 1.0),
            "every session has settled",
            last=self._unsettled,
        )
        self._callers.retry()
        until(self._callers.serves, CONVERGED_WITHIN, "the endpoint serves", last=self._callers.look)
        self.converged_after = time.monotonic() - started_at

    def no_request_is_lost_without_a_fault(self) -> None:
        """Callers of the endpoint had answers, or refusals that say what was struck."""
        answers, inflicted = self._callers.answers, self._nemesis.inflicted
        assert not self._callers.unexcused(), answers
        assert answers["no answer"] <= self._callers.most_lost(inflicted), (answers, inflicted)

    def nothing_is_lost_or_doubled(self) -> None:
        """The portal has exactly the sessions that it has accepted."""
        there = {session["id"] for session in self._of_users()}
        assert there == set(self.launched), f"lost {set(self.launched) - there}, doubled {there - set(self.launched)}"

    def every_end_is_explained(self) -> None:
        """No session has ended but by its owner's wish, by its own program, or by a fault that explains it."""
        surprises = []
        for session in self._of_users():
            self.ends[f"{session['status']} {session['status_reason']}".strip()] += 1
            if session["status"] in TERMINAL and not self._is_explained(session, self.launched[session["id"]]):
                surprises.append((session, self._client.history(session["id"])))
        assert not surprises, surprises

    def audit_is_clean(self) -> None:
        """``manage.py audit`` finds nothing."""
        answers: list[str] = []

        def clean() -> bool:
            run = self._rig.platform.manage(*self._rig.nodes.audit)
            answers.append(run.stdout + run.stderr)
            return run.returncode == 0

        until(clean, 30.0, "the audit is clean", last=lambda: answers[-1])

    def all_ends(self) -> None:
        """After everybody has ended everything no process, no zombie and no slot is left."""
        started_at = time.monotonic()
        until(lambda: all([user.end_all() for user in self._users]), CONVERGED_WITHIN, "every end is answered")
        until(self._callers.delete, CONVERGED_WITHIN, "the end of the endpoint is answered")
        until(lambda: not self._live(), CONVERGED_WITHIN, "every session has ended", last=self._live)
        kernels = self._rig.nodes.kernels
        until(lambda: not kernels(), CONVERGED_WITHIN, "no kernel's process is left", last=kernels)
        self.ended_after = time.monotonic() - started_at
        assert self._client.group()["occupied"] == {"cpu": "0", "mem": "0"}
        assert self._rig.count_rows("compute_allocation") == 0
        until(lambda: not self._rig.platform.scratch_folders(), 60.0, "no folder of a kernel is left")
        family = psutil.Process(self._rig.platform.pid).children(recursive=True)
        assert not [child for child in family if child.status() == psutil.STATUS_ZOMBIE], family

    def table(self, seed: int, seconds: float) -> str:
        """Return the summary."""
        faults, missed = self._nemesis.inflicted, self._nemesis.missed
        answers: Counter[str] = Counter()
        for user in self._users:
            answers.update(user.answers)
        refused = Counter(one[:100] for user in self._users for one in user.refused)
        said = Counter(_EXCEPTION.findall(self._rig.platform.logs()))
        rows = [
            f"seed {seed} on {self._rig.kind}, {seconds:g} s: {faults.total()} faults of {len(faults)} kinds",
            *(f"  {number:4} {kind}" for kind, number in sorted(faults.items())),
            f"  not inflicted, nothing was there to strike: {missed.total()} {dict(missed)}",
            f"sessions accepted: {len(self.launched)}; answers: {dict(answers)}",
            *(f"  {number:4} {end}" for end, number in self.ends.most_common()),
            *(f"  {number:4} refused: {one}" for one, number in refused.most_common(5)),
            f"requests to the endpoint: {dict(self._callers.answers.most_common())}",
            f"settled {self.converged_after:.1f} s after the last fault; all ended within {self.ended_after:.1f} s; "
            f"bin/up was started again {self._rig.supervisor_starts} times",
            "errors in the log:",
            *(f"  {number:4} {one}" for one, number in said.most_common(25)),
        ]
        return "\n".join(rows)

    def _of_users(self) -> list[Body]:
        """Return the sessions but for the replicas of the endpoint."""
        return [session for session in self._client.sessions() if session["type"] != "inference"]

    def _log(self, what: str, found: list[str]) -> list[str]:
        """Return what was found; the log has it."""
        if found:
            logger.info("%s: %d, %s", what, len(found), "; ".join(found[:3]))
        return found

    def _parts(self) -> list[str]:
        """Return what is not up."""
        if not self._rig.platform.is_up:
            return ["bin/up"]
        missing = sorted(_ROLES - self._rig.pids().keys())
        try:
            ready = requests.get(f"{self._rig.platform.url}/readyz", timeout=5, proxies={"http": ""})
            missing += [] if ready.ok else [f"readyz: {ready.text[:200]}"]
            if ready.ok:
                agents = self._client.agents()
                missing += [f"{agent['name']} is {agent['status']}" for agent in agents if agent["status"] != "ALIVE"]
        except (requests.RequestException, AssertionError) as error:
            missing.append(repr(error)[:200])
        return missing

    def _unsettled(self) -> list[str]:
        sessions, asked = self._client.sessions(), self.launched
        self._rig.nodes.remember(sessions)
        there = self._rig.nodes.kernels()
        wrong = []
        for session in sessions:
            if session["type"] == "inference":
                continue  # the endpoint serves, which says more
            status, own = session["status"], [UUID(kernel["id"]) for kernel in session["kernels"]]
            left = [kernel for kernel in own if kernel in there]
            alive = [kernel for kernel in left if there[kernel]]
            settled = {
                "RUNNING": len(alive) == len(own) or self._is_done(session),
                "PENDING": bool(session["status_message"]) and not left,
                **dict.fromkeys(TERMINAL, not left),
            }.get(status, False)
            if asked[session["id"]].asked_to_end and status not in TERMINAL:
                settled = self._ask_again(asked[session["id"]])
            if not settled:
                wrong.append(f"{session['id']} {status} {session['status_reason']}, kernels there {len(left)}")
        return wrong

    def _is_done(self, session: Body) -> bool:
        """Whether a kernel of the running session has ended as it should: of a batch session, with success."""
        return session["type"] == "batch" and all(
            kernel["status"] in {"RUNNING", *TERMINAL} for kernel in session["kernels"]
        )

    def _ask_again(self, one: Launched) -> bool:
        """Ask for an end to which there may have been no answer."""
        self._client.terminate(one.id)
        return False

    def _is_explained(self, session: Body, one: Launched) -> bool:
        reason = session["status_reason"]
        if one.asked_to_end and reason == "user-requested":
            return True
        if any(UUID(kernel["id"]) in self._rig.killed_kernels for kernel in session["kernels"]):
            return reason in _KILLED
        if session["type"] == "batch" and session["status"] == "TERMINATED":
            expected = "FAILED" if one.wish["startup_command"].endswith("1") else "SUCCESS"
            return bool(session["result"] == expected)
        return any(self._nemesis.inflicted[kind] for kind in _EXPLAINED.get(reason, ()))

    def _live(self) -> list[str]:
        live = [one for one in self._client.sessions() if one["status"] not in TERMINAL]
        return [f"{one['id']} {one['type']} {one['status']} {one['status_reason']} {one['kernels']}" for one in live]
