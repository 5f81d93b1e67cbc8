"""A client of the portal for agents with many kernels: its threads' questions and reports share calls."""

from __future__ import annotations

import base64
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, TypeVar
from uuid import UUID

from pydantic import ValidationError

from backendai.agent.counts import bundles
from backendai.agent.portal.client import PortalClient, PortalRefused, PortalUnreachable
from backendai.base.core.errors import PlatformError
from backendai.base.wire.bundles import LARGEST_BUNDLED_LOG, MOST_IN_BUNDLE, BundledLog, BundleDown, BundleUp
from backendai.base.wire.messages import KernelReport, KernelSpec

Q = TypeVar("Q")
A = TypeVar("A")


class _Asked(Generic[Q, A]):
    """A question, with its answer or error once ``is_done``."""

    __slots__ = ("answer", "error", "is_done", "question")

    def __init__(self, question: Q) -> None:
        self.question = question
        self.answer: A
        self.error: Exception | None = None
        self.is_done = False


class Bundles(Generic[Q, A]):
    """Combines questions of threads. ``send`` receives up to ``most`` questions and returns their answers in order; an
    exception of ``send`` is raised in all threads that asked."""

    def __init__(self, send: Callable[[Sequence[Q]], Sequence[A]], *, most: int) -> None:
        self._send, self._most = send, most
        self._waiting: deque[_Asked[Q, A]] = deque()
        self._changed = threading.Condition()
        self._is_sending = False

    def ask(self, question: Q) -> A:
        """Return the answer to this question. Blocks; raises the exception of ``send``."""
        own: _Asked[Q, A] = _Asked(question)
        with self._changed:
            self._waiting.append(own)
        while (some := self._turn_of(own)) is not None:
            self._send_some(some)
        if own.error is not None:
            raise own.error
        return own.answer

    def _turn_of(self, own: _Asked[Q, A]) -> list[_Asked[Q, A]] | None:
        """Wait for this thread's turn to send, and return the questions to send; None once its own is answered."""
        with self._changed:
            self._changed.wait_for(lambda: own.is_done or not self._is_sending)
            if own.is_done:
                return None
            self._is_sending = True
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]

    def _send_some(self, some: Sequence[_Asked[Q, A]]) -> None:
        try:
            answers = self._send([one.question for one in some])
            for one, answer in zip(some, answers, strict=True):
                one.answer = answer
        except Exception as error:
            for one in some:
                one.error = error
        finally:
            with self._changed:
                for one in some:
                    one.is_done = True
                self._is_sending = False
                self._changed.notify_all()


Question = UUID | KernelReport | BundledLog  # a UUID requests that kernel's spec


class _Sign(Enum):
    """Answers that are not the requested object."""

    ALONE = "the bundle was not answered: ask alone"
    FOREIGN = "the kernel is not on this agent"


Answer = KernelSpec | bool | None | _Sign


class BundlingClient(PortalClient):
    """Combines calls that arrive while another is in progress. After a failed bundle each of its
    questions is sent alone, so that a fault of one kernel does not affect others."""

    def __init__(self, url: str, token: str = "", *, name: str = "") -> None:
        super().__init__(url, token, name=name)
        self._bundles: Bundles[Question, Answer] = Bundles(self._ask_together, most=MOST_IN_BUNDLE)

    def fetch_spec(self, kernel_id: UUID) -> KernelSpec | None:
        """Return the kernel's spec, or None if the portal does not want the kernel on this agent."""
        answer = self._ask(kernel_id)
        return answer if isinstance(answer, KernelSpec) else None

    def report(self, report: KernelReport) -> bool:
        """Report a kernel's state; returns whether the report changed anything in the portal."""
        return self._ask(report) is True

    def put_log(self, kernel_id: UUID, generation: int, log: bytes, *, truncated: bool) -> None:
        """Upload the end of a kernel's log; a log larger than ``LARGEST_BUNDLED_LOG`` is sent alone."""
        if len(log) > LARGEST_BUNDLED_LOG:
            super().put_log(kernel_id, generation, log, truncated=truncated)
            return
        content = base64.b64encode(log)
        self._ask(BundledLog(kernel_id=kernel_id, generation=generation, content=content, truncated=truncated))

    def _ask(self, question: Question) -> Answer:
        answer = self._bundles.ask(question)
        if answer is _Sign.ALONE:
            return self._ask_alone(question)
        if answer is _Sign.FOREIGN:
            raise PortalRefused("This kernel is not on this agent.", status=404)
        return answer

    def _ask_alone(self, question: Question) -> Answer:
        if isinstance(question, UUID):
            return super().fetch_spec(question)
        if isinstance(question, KernelReport):
            return super().report(question)
        super().put_log(question.kernel_id, question.generation, question.content, truncated=question.truncated)
        return True

    def _ask_together(self, questions: Sequence[Question]) -> Sequence[Answer]:
        bundles.observe(len(questions))
        if len(questions) == 1:
            return [self._ask_alone(questions[0])]
        up = BundleUp(
            specs=[one for one in questions if isinstance(one, UUID)],
            logs=[one for one in questions if isinstance(one, BundledLog)],
            reports=[one for one in questions if isinstance(one, KernelReport)],
        )
        try:
            return list(_answers(questions, self._send_bundle(up)))
        except PlatformError:
            return [_Sign.ALONE] * len(questions)

    def _send_bundle(self, up: BundleUp) -> BundleDown:
        body = self._send("POST", "/bundle", up.model_dump_json())
        try:
            down = BundleDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable("The portal's answer makes no sense: {error}", error=str(error)) from error
        if (len(down.kept), len(down.applied)) != (len(up.logs), len(up.reports)):
            raise PortalUnreachable("The portal did not answer everything.")
        return down


def _answers(questions: Sequence[Question], down: BundleDown) -> Iterator[Answer]:
    specs = {spec.kernel_id: spec for spec in down.specs}
    kept, applied = iter(down.kept), iter(down.applied)
    for one in questions:
        if isinstance(one, UUID):
            yield specs.get(one)
        elif isinstance(one, BundledLog):
            yield True if next(kept) else _Sign.FOREIGN
        else:
            answer = next(applied)
            yield _Sign.FOREIGN if answer is None else answer
