"""Calls of NVIDIA's management library (NVML) that tolerate functions which a card or driver lacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pynvml
from pynvml import NVMLError, NVMLLibraryMismatchError

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Errors of cards, drivers and libraries that lack a function, or reserve it for root.
_UNKNOWN = frozenset(
    {
        pynvml.NVML_SUCCESS,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NOT_READY,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
_PROCESS_LISTS = (
    (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2),
    (pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v2),
)
_NO_DRIVER = frozenset({pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
# Xid errors caused by programs, which end with the program; all others indicate a faulty card.
_PROGRAM_FAULTS = frozenset({13, 31, 43, 45, 68, 109})
_MOST_EVENTS = 256  # read at once


def ask(call: Callable[..., T], *arguments: Any) -> T | None:
    """Return the library's answer; None if the function is unavailable here. Raises NVMLError for a failing device."""
    try:
        return call(*arguments)
    except NVMLLibraryMismatchError:  # the driver lacks this version of the function
        return None
    except NVMLError as error:
        if error.value in _UNKNOWN:
            return None
        raise


def processes_on(handle: Any) -> dict[int, int | None]:
    """Return the device memory (bytes; None: unknown) of each computing process, including MPS clients."""
    held: dict[int, int | None] = {}
    for newest, older in _PROCESS_LISTS:
        listed = ask(newest, handle)
        if listed is None:
            listed = ask(older, handle)
        held |= {one.pid: one.usedGpuMemory for one in listed or ()}
    return held


def lacks_driver(error: NVMLError) -> bool:
    """Return whether the error means a missing driver or library."""
    return error.value in _NO_DRIVER


def text(value: str | bytes) -> str:
    """Return a text of the library; some versions return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


class CriticalErrors:
    """The critical errors (Xid) that the driver reported since ``listen``. Cards, drivers and libraries may not support
    them."""

    def __init__(self) -> None:
        self._events: Any = None
        self._seen: dict[str, int] = {}

    def listen(self, handles: list[Any]) -> None:
        """Start to receive the errors of these devices."""
        try:
            self._events = pynvml.nvmlEventSetCreate()
            for handle in handles:
                ask(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except NVMLError as error:
            logger.info("critical errors of GPUs are not told: %s", error)
            self.close()

    def by_device(self) -> dict[str, int]:
        """Return the last critical error number of each device that had one, by UUID."""
        for event in self._pending():
            number = int(event.eventData)
            uuid = None if number in _PROGRAM_FAULTS else _uuid_of(event.device)
            if uuid:
                self._seen[uuid] = number
        return dict(self._seen)

    def close(self) -> None:
        """Stop listening; received errors stay known."""
        events, self._events = self._events, None
        if events is not None:
            try:
                pynvml.nvmlEventSetFree(events)
            except NVMLError as error:
                logger.info("%s", error)

    def _pending(self) -> Iterator[Any]:
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self.close()
                return
            if int(event.eventType) & pynvml.nvmlEventTypeXidCriticalError:
                yield event


def _uuid_of(handle: Any) -> str | None:
    try:
        return text(pynvml.nvmlDeviceGetUUID(handle))
    except NVMLError:
        return None
