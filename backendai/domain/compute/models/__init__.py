"""Compute sessions, their kernels, their allocations and their history."""

from backendai.domain.compute.models.apps import LONGEST_APP_TITLE, AppSetting, PublicApp, PublicFor
from backendai.domain.compute.models.commits import ImageCommit
from backendai.domain.compute.models.homes import HomeKeep
from backendai.domain.compute.models.idle import IdleWarning, SessionTraffic
from backendai.domain.compute.models.launch_records import LaunchRecord, SessionFile
from backendai.domain.compute.models.logs import EarlierLog, KernelLog
from backendai.domain.compute.models.mounts import SessionMount
from backendai.domain.compute.models.notices import NoticeQuerySet, SessionNotice
from backendai.domain.compute.models.sessions import Allocation, ComputeSession, Kernel, SchedulingRecord, history_entry
from backendai.domain.compute.models.ssh import SessionSshKey
from backendai.domain.compute.models.unknown import UnknownKernel

__all__ = [
    "LONGEST_APP_TITLE",
    "Allocation",
    "AppSetting",
    "ComputeSession",
    "EarlierLog",
    "HomeKeep",
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
    "SessionSshKey",
    "SessionTraffic",
    "UnknownKernel",
    "history_entry",
]
