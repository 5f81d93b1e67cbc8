"""Limits the questions to one session, and the threads that wait for agents.

Each question may stay without an answer for a minute, and the owner of a session is the master of who answers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from backendai.base.core.errors import Overloaded

MOST_OF_SESSION = 64  # of waiting coroutines
LARGE = 2**20  # bytes of an answer: more come from pictures, and from directories with very many files
MOST_LARGE, MOST_LARGE_OF_SESSION = 8, 2  # 24 MiB each
MOST_THREADS_OF_KERNEL = 4
MOST_THREADS = 12  # of the 32 of the web process

_lock = threading.Lock()
_open: Counter[Hashable] = Counter()


@contextmanager
def question_to(session: Hashable) -> Iterator[None]:
    """Count a question to this session's guest agent during the block. Raises Overloaded."""
    text = (
        "{most} requests to this session are open, and no more may be at a time. Try again when one of them has ended."
    )
    with _counted(("session", session), Overloaded(text, most=MOST_OF_SESSION, code="too-many-questions")):
        yield


@contextmanager
def large_answer_of(session: Hashable) -> Iterator[None]:
    """Count an answer of more than ``LARGE`` bytes that is read during the block. Raises Overloaded."""
    text = "{most} large answers are read, and no more may be at a time. Try again in a few seconds."
    of_session = Overloaded(text, most=MOST_LARGE_OF_SESSION, code="too-many-questions")
    of_all = Overloaded(text, most=MOST_LARGE, code="too-many-questions")
    with _counted(("large", session), of_session), _counted("large", of_all):
        yield


@contextmanager
def waiting_thread(kernel: Hashable) -> Iterator[None]:
    """Count a thread that waits for the agent of this kernel during the block. Raises Overloaded."""
    of_kernel = Overloaded(
        "{most} pages wait for the agent of this session, and no more may at a time. Try again in a few seconds.",
        most=MOST_THREADS_OF_KERNEL,
        code="too-many-questions",
    )
    of_all = Overloaded(
        "{most} pages wait for agents that do not answer, and no more may at a time. Try again in a few seconds.",
        most=MOST_THREADS,
        code="too-many-questions",
    )
    with _counted(("kernel", kernel), of_kernel), _counted("threads", of_all):
        yield


@contextmanager
def _counted(key: Hashable, refusal: Overloaded) -> Iterator[None]:
    with _lock:
        if _open[key] >= refusal.details["most"]:
            raise refusal
        _open[key] += 1
    try:
        yield
    finally:
        with _lock:
            _open[key] -= 1
            if not _open[key]:
                del _open[key]
