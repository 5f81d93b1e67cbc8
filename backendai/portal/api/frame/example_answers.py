"""An example of the main answers, by its component of the OpenAPI document."""

from __future__ import annotations

from typing import Any

_ID, _AT = "0198f2b4-6c1e-7d3a-9b52-2f4e8a1c7d60", "2030-01-31T09:00:00Z"
_KERNEL: dict[str, Any] = {
    "id": _ID, "role": "main", "index": 1, "rank": 0, "hostname": "main1", "agent": None, "container_id": "",
    "status": "PENDING", "status_reason": "", "status_message": "", "status_values": {}, "exit_code": None,
    "progress": None, "fetched_bytes": None, "image_bytes": None, "resources": {"cpu": "4", "mem": "8589934592"},
    "image": None, "devices": {}, "on_failure": "end", "after": [], "is_held": False, "ready": {}, "restarts": 0,
    "is_unconfirmed": False, "created_at": _AT, "started_at": None, "ended_at": None,
}  # fmt: skip

ANSWERS: dict[str, dict[str, Any]] = {
    "SessionBody": {
        "id": _ID, "name": "train-1", "type": "batch", "status": "PENDING", "status_reason": "", "status_message": "",
        "status_values": {}, "status_data": {}, "result": "UNDEFINED", "owner": "alice@example.com",
        "launched_by": None, "project": "vision", "resource_group": "default", "image": "python",
        "resources": {"cpu": "4", "mem": "8589934592"}, "shm_bytes": 1073741824, "cluster_size": 1,
        "cluster_mode": "single-node", "environ": {"SEED": "7"}, "preopen_ports": [],
        "startup_command": "python train.py", "starts_at": None, "batch_timeout": "02:00:00", "designated_agents": [],
        "placement": "", "launch_id": _ID, "priority": 10, "retry_on_agent_loss": False, "may_be_stopped": False,
        "queue_position": None,
        "attempts": 0, "retries": 0, "version": 0, "created_at": _AT, "scheduled_at": None, "started_at": None,
        "ends_at": None, "stopped_at": None, "resumes": 0, "terminating_at": None, "ended_at": None,
        "depends_on": [], "depends_when": "success",
        "template": "", "parameters": {}, "kernels": [_KERNEL], "mounts": [], "start_in": "",
        "labels": {"experiment": "baseline"}, "note": "Try 1",
    },
    "MeBody": {
        "id": _ID, "email": "alice@example.com", "full_name": "", "role": "user", "domain": "default",
        "projects": [{"id": _ID, "name": "vision", "domain": "default"}], "default_resource_group": "default",
    },
    "ImageBody": {
        "id": _ID, "name": "python", "aliases": [], "title": "python", "description": "",
        "reference": "local/python:latest", "architecture": "", "digest": "", "size_bytes": None,
        "minimum": {"cpu": "0.1", "mem": "67108864"}, "maximum": {}, "is_enabled": True, "is_customized": False,
        "owner": None, "created_at": _AT,
    },
    "ResourceGroupBody": {
        "name": "default", "description": "", "is_active": True, "is_default": True,
        "allowed_session_types": ["batch", "inference"], "agents": 1, "pending": 1,
        "capacity": {"cpu": "4", "mem": "8589934592"}, "occupied": {"cpu": "0", "mem": "0"},
        "free": {"cpu": "4", "mem": "8589934592"},
    },
    "EndpointBody": {
        "id": _ID, "name": "chat", "url": "https://chat-0198f2b46c1e.apps.example.com",
        "program_url": "https://chat-0198f2b46c1e.apps.example.com", "owner": "alice@example.com",
        "resource_group": "default", "wish": "run", "health": "starting",
        "reason": {
            "code": "blind", "message": "No app proxy has reported: the number does not go down.", "data": {},
            "until": None,
        }, "revision": 1,
        "next_revision": None, "ready": 0, "requests_per_second": 0.0, "p95": None, "desired": 1, "minimum": 1,
        "maximum": 4, "target": 8.0, "concurrency": 0, "queue": 100, "queue_seconds": 30.0, "hold_seconds": 60.0,
        "answer_timeout": 600.0, "is_public": False, "is_repeatable": False, "max_surge": 1, "max_unavailable": 0,
        "origins": [], "warm_up": 0.0, "affinity": "", "canary": 0, "asleep_after": 900.0,
        "common_url": "https://models.apps.example.com/v1", "created_at": _AT,
    },
    "NewTokenBody": {
        "id": _ID, "name": "laptop", "hint": "bai_1BxQ", "scopes": ["read", "sessions"], "created_at": _AT,
        "last_used_at": None, "expires_at": _AT, "token": "bai_example-of-a-token-that-opens-nothing",
    },
    "Problem": {
        "type": "about:blank", "title": "Bad Request", "status": 400,
        "detail": "resources.cpu: Write a number or a text.", "code": "invalid-request", "field": "resources.cpu",
        "errors": [{"field": "resources.cpu", "code": "invalid-document", "detail": "Write a number or a text."}],
    },
    "FolderBody": {
        "id": _ID, "name": "datasets", "host": "local", "owner": "alice@example.com", "project": None,
        "usage": "general", "rights": "manage", "member_rights": "edit", "is_cloneable": False, "is_linked": False,
        "status": "READY", "status_message": "", "is_reachable": True, "limit_bytes": 10737418240,
        "is_limit_enforced": True, "used_bytes": 52428800, "used_files": 12, "measured_at": _AT, "created_at": _AT,
        "changed_at": _AT, "trashed_at": None, "deleted_at": None, "files_url": "https://portal.example.com/files/",
    },
}  # fmt: skip
