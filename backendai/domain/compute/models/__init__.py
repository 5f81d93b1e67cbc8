"""Compute sessions, their kernels, their allocations and their history."""

from backendai.domain.compute.models.apps import LONGEST_APP_TITLE, AppSetting, PublicApp, PublicFor
from backendai.domain.compute.models.commits import EarlierLog, HomeKeep, HomeStore, ImageCommit, KernelLog
from backendai.domain.compute.models.idle import IdleWarning, SessionTraffic
from backendai.domain.compute.models.launch_records import LaunchRecord, SessionFile
from backendai.domain.compute.models.notices import SessionNotice
from backendai.domain.compute.models.schedules import StopSchedule
from backendai.domain.compute.models.sessions import (
    Allocation,
    ComputeSession,
    Kernel,
    SchedulingRecord,
    SessionMount,
    SessionSshKey,
    history_entry,
)
from backendai.domain.compute.models.shares import SessionShare
from backendai.domain.compute.models.unknown import UnknownKernel

__all__ = [
    "LONGEST_APP_TITLE",
    "Allocation",
    "AppSetting",
    "ComputeSession",
    "EarlierLog",
    "HomeKeep",
    "HomeStore",
    "IdleWarning",
    "ImageCommit",
    "Kernel",
    "KernelLog",
    "LaunchRecord",
    "NoticeQuerySet",
    "PublicApp",
    "PublicFor",
    "SchedulingRecord",
    "SessionFile",
    "SessionMount",
    "SessionNotice",
    "SessionShare",
    "SessionSshKey",
    "SessionTraffic",
    "StopSchedule",
    "UnknownKernel",
    "history_entry",
]
