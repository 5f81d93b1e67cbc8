"""Combines the calls of many threads into one call to the portal.

A single call is sent at once. Calls that arrive while another is in progress wait for its end and are sent together, so
that a busy agent makes a few calls a second instead of four for each kernel.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

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
