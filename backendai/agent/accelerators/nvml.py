"""NVIDIA's management library, asked so that what a card or driver does not know costs a value and not the agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pynvml
from pynvml import NVMLError, NVMLLibraryMismatchError

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Said by cards, drivers and libraries that lack a function, or by drivers that keep it to root.
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
# Mistakes of programs, which end with them; every other of these errors means that the card needs looking after.
_PROGRAM_FAULTS = frozenset({13, 31, 43, 45, 68, 109})
_MOST_EVENTS = 256  # at one look


def ask(call: Callable[..., T], *arguments: Any) -> T | None:
    """Return what the library says, None when it cannot say that here. Raises NVMLError for a device that fails."""
    try:
        return call(*arguments)
    except NVMLLibraryMismatchError:  # the driver is older than this version of the function
        return None
    except NVMLError as error:
        if error.value in _UNKNOWN:
            return None
        raise


def processes_on(handle: Any) -> dict[int, int | None]:
    """Return the bytes of the device's memory that each process holds that computes on it, also by way of MPS."""
    held: dict[int, int | None] = {}
    for newest, older in _PROCESS_LISTS:
        listed = ask(newest, handle)
        if listed is None:
            listed = ask(older, handle)
        held |= {one.pid: one.usedGpuMemory for one in listed or ()}
    return held


def lacks_driver(error: NVMLError) -> bool:
    """Return whether the error only says that there is no driver."""
    return error.value in _NO_DRIVER


def text(value: str | bytes) -> str:
    """Return a text of the library, whichever way its version hands it out."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


class CriticalErrors:
    """The errors (Xid) that the driver reported since ``listen``, where card, driver and library tell them."""

    def __init__(self) -> None:
        self._events: Any = None
        self._seen: dict[str, int] = {}

    def listen(self, handles: list[Any]) -> None:
        """Have the errors of these devices told from now on."""
        try:
            self._events = pynvml.nvmlEventSetCreate()
            for handle in handles:
                ask(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except NVMLError as error:
            logger.info("critical errors of GPUs are not told: %s", error)
            self.close()

    def by_device(self) -> dict[str, int]:
        """Return the number of the last critical error of each device that had one, by its id."""
        for event in self._pending():
            number = int(event.eventData)
            uuid = None if number in _PROGRAM_FAULTS else _uuid_of(event.device)
            if uuid:
                self._seen[uuid] = number
        return dict(self._seen)

    def close(self) -> None:
        """Stop listening; what was heard stays known."""
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
