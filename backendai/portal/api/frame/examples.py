"""An example of each body that a request can have, by its component of the OpenAPI document. Tests read each."""

from __future__ import annotations

from typing import Any

_ID = "0198f2b4-6c1e-7d3a-9b52-2f4e8a1c7d60"
_OTHER_ID = "0198f2b7-11aa-7c04-8e0d-5b7d3c9e2f18"
_LATER = "2030-01-31T18:00:00Z"
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBxwFHDxqrb4ocjn7smK2L2L8ErFjSlKTqqbg0bQxJ0q alice@laptop"

_SESSIONS: dict[str, dict[str, Any]] = {
    "LaunchRequest": {
        "name": "train-1",
        "type": "batch",
        "image": "python",
        "resources": {"cpu": 4, "mem": "8g"},
        "resource_group": "default",
        "startup_command": "python train.py",
        "environ": {"SEED": "7"},
        "mounts": [{"folder": "datasets", "target": "/data", "rights": "view"}],
        "batch_timeout": "2h",
    },
    "TerminateRequest": {"force": False},
    "TerminateManyRequest": {"sessions": [_ID, _OTHER_ID], "force": False},
    "RenameRequest": {"name": "train-final"},
    "StopScheduleRequest": {"stop_at": "20:00", "resume_at": "08:00", "is_weekdays": True, "time_zone": "Asia/Seoul"},
    "SessionShareRequest": {"email": "bob@example.com", "right": "view"},
    "LabelsRequest": {"labels": {"metric": "0.93", "draft": None}, "note": "Best so far"},
    "PriorityRequest": {"priority": 20},
    "EndTimeRequest": {"ends_at": _LATER},
    "CommitRequest": {"name": "python with torch"},
    "PatchedCommitRequest": {"name": "python with torch 2"},
    "KeepHomeRequest": {"name": "results", "ends_session": True},
    "AppSettingsBodyRequest": {"title": "Runs", "arguments": {"--logdir": "/home/work/runs"}},
    "PublicAppBodyRequest": {"public_for": "1h"},
    "SessionSshKeyRequest": {"renew": True},
    "ExtendRequest": {"checker": 3},
    "CodeRunRequest": {"run_id": "first", "code": "print(6 * 7)", "language": "python", "wait": 5},
    "RunInputRequest": {"text": "yes"},
    "ContextRequest": {"name": "second", "language": "python"},
    "CompletionRequest": {"code": "import nump", "cursor": 11},
    "ExecuteRequest": {"mode": "query", "code": "print(6 * 7)", "runId": None},
    "HomeDeletionRequest": {"paths": ["old.log", "checkpoints/1"]},
    "MoveRequest": {"source": "model.pt", "target": "models/model.pt"},
    "PatchedRecentLaunchChangeRequest": {"name": "training", "is_pinned": True},
}
_RUNS: dict[str, dict[str, Any]] = {
    "RunRequest": {
        "name": "sweep",
        "document": {
            "steps": {
                "train": {
                    "image": "python",
                    "startup_command": 'python train.py --lr "$PARAM_LR"',
                    "resources": {"cpu": 1, "mem": "1g"},
                    "matrix": {"lr": [0.1, 0.01]},
                }
            }
        },
    },
    "RetryRequest": {"indexes": [3, 7]},
    "AtOnceRequest": {"at_once": 4},
    "TemplateRequest": {
        "name": "train",
        "scope": "private",
        "title": "Training",
        "text": "params:\n  lr: {type: number, default: 0.1}\nimage: python\ntype: batch\n"
        'startup_command: python train.py --lr "$PARAM_LR"\nresources: {cpu: 4, mem: 8g}\n',
    },
    "PatchedTemplateChangeRequest": {"title": "Training on one GPU", "icon": "cpu", "deprecated": ""},
    "WrittenRequest": {"text": "image: python\nresources: {cpu: 1, mem: 1g}\n", "note": "less memory"},
    "ActivateRequest": {"version": 2},
    "RenderRequest": {"version": 2, "parameters": {"lr": 0.01}, "request": {"name": "train-2"}},
}
_ENDPOINTS: dict[str, dict[str, Any]] = {
    "EndpointRequest": {
        "name": "chat",
        "image": "serve",
        "command": "python -m serve --port $PORT",
        "resources": {"cpu": 2, "mem": "4g"},
        "minimum": 1,
        "maximum": 4,
        "target": 8,
    },
    "PatchedEndpointSettingsRequest": {"maximum": 8, "asleep_after": 900},
    "RevisionUpdateRequest": {
        "image": "serve",
        "command": "python -m serve --port $PORT --context 8192",
        "resources": {"cpu": 2, "mem": "8g"},
    },
    "RollBackRequest": {"revision": 1},
    "RulesRequest": {"rules": [{"metric": "latency", "up_over": 2.0, "down_under": 0.5, "step": 1}]},
    "EndpointTokenRequest": {"name": "website", "per_minute": 600, "expires_at": _LATER},
}
_FOLDERS: dict[str, dict[str, Any]] = {
    "FolderRequest": {"name": "datasets", "usage": "general", "limit_bytes": 10 * 2**30},
    "PatchedFolderChangeRequest": {"name": "datasets-2", "limit_bytes": 20 * 2**30},
    "FolderCloneRequest": {"name": "datasets-copy"},
    "FolderRestoreRequest": {"name": "datasets-old"},
    "FolderPurgeRequest": {"name": "datasets"},
    "FolderTransferRequest": {"from_user": "alice@example.com", "to_user": "bob@example.com"},
    "FolderShareRequest": {"email": "bob@example.com", "rights": "view"},
    "FolderCutRequest": {"keep_session": False},
    "FolderTicketRequest": {"rights": "view"},
    "FolderMoveRequest": {"source": "raw/a.csv", "target": "clean/a.csv", "overwrite": False},
    "DirectoryRequest": {"path": "raw/2030"},
    "DeletionRequest": {"paths": ["raw/a.csv", "raw/2029"]},
    "ItemRestoreRequest": {"overwrite": False},
    "HostRequest": {"name": "nfs", "title": "Large and slow", "address": "http://files.example.com:8084"},
    "PatchedHostChangeRequest": {"title": "Large", "is_enabled": True},
}
_OWN: dict[str, dict[str, Any]] = {
    "TokenRequest": {"name": "laptop", "scopes": ["read", "sessions"], "expires_at": _LATER},
    "DeviceCodeRequest": {"client_name": "bai on laptop", "scope": "read sessions"},
    "DeviceTokenRequest": {
        "device_code": "yNqYvO1rCkK4sSgGqzJm3u0zQ6yV5c6m2n9xq1b7t8E",
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
    },
    "KeyPairRequest": {"name": "cluster scripts"},
    "PatchedKeyPairChangeRequest": {"name": "old scripts", "is_active": False},
    "SshKeyRequest": {"name": "laptop", "public_key": _KEY},
    "DotfileRequest": {"path": ".vimrc", "permission": "644", "content": "set number\n"},
    "BootstrapRequest": {"content": "pip install --quiet tqdm\n"},
    "ShareRequest": {"project": _ID},
    "PatchedNoticeChoicesBodyRequest": {"finished": {"bell": True, "email": False}},
    "CheckPresetsRequest": {"resource_group": "default", "project": "vision"},
}
_PEOPLE: dict[str, dict[str, Any]] = {
    "NewUserRequest": {"email": "erin@example.com", "full_name": "Erin", "role": "user", "projects": ["vision"]},
    "PatchedUserChangeRequest": {"full_name": "Erin Doe", "share_weight": 2},
    "PasswordRequest": {"password": "a new sentence to remember", "end_tokens": True},
    "PurgeRequest": {"email": "erin@example.com"},
    "PatchedKeyPairLimitChangeRequest": {"policy": "students", "rate_limit": 1000},
    "InvitationRequest": {"email": "erin@example.com", "project": "vision", "role": "member", "days": 7},
    "NewProjectRequest": {"name": "vision", "domain": "default"},
    "PatchedProjectChangeRequest": {"name": "vision-lab", "policy": None},
    "NewMemberRequest": {"email": "bob@example.com", "role": "member"},
    "PatchedMemberChangeRequest": {"role": "admin"},
    "NewDomainRequest": {"name": "physics", "policy": None},
    "PatchedDomainChangeRequest": {"is_active": True, "share_weight": 1.5},
    "PolicyRequest": {"name": "students", "slots": {"cpu": "8", "mem": "32g"}, "max_sessions": 4},
    "PatchedPolicyRequest": {"max_sessions": 6, "max_session_lifetime": "1d"},
}
_CLUSTER: dict[str, dict[str, Any]] = {
    "GroupSettingsBodyRequest": {"name": "gpu", "description": "Two machines with GPUs", "is_public": True},
    "PatchedGroupSettingsBodyRequest": {"pending_timeout": "1 00:00:00", "max_retries": 3},
    "PatchedAgentChangeRequest": {"schedulable": False, "max_kernels": 16},
    "DrainRequest": {"ends_at": _LATER},
    "JoinTokenRequest": {"resource_group": "default", "reusable": True, "expires_at": _LATER},
    "CheckerRequest": {
        "name": "forgotten GPUs",
        "kind": "utilization",
        "limit": "1h",
        "grace": "15m",
        "warning": "10m",
        "thresholds": {"cuda.device": 5},
        "is_site_wide": True,
    },
    "PatchedCheckerRequest": {"limit": "2h", "is_active": True},
    "PresetRequest": {"name": "small", "resources": {"cpu": 1, "mem": "2g"}, "shm_bytes": 2**26},
    "PatchedPresetRequest": {"resources": {"cpu": 2, "mem": "4g"}, "rank": 10},
    "PatchedSlotTypeChangeRequest": {"display_name": "GPU", "is_enabled": True},
    "PatchedSettingsBodyRequest": {"public_apps": False, "package_index": "https://pypi.example.com/simple"},
    "PatchedImageChangeRequest": {"title": "Python 3.13", "minimum": {"cpu": 1, "mem": "512m"}, "aliases": ["py"]},
    "ImageRequest": {"name": "torch", "reference": "registry.example.com/lab/torch:2.5", "minimum": {"mem": "1g"}},
    "AnnouncementRequest": {"text": "Maintenance on Friday at 18:00.", "tone": "warning", "ends_at": _LATER},
    "PatchedAnnouncementRequest": {"ends_at": None},
    "PullRequest": {"agents": ["node-1"], "resource_groups": ["gpu"]},
    "RegistryRequest": {"name": "harbor", "url": "https://registry.example.com", "projects": "lab"},
    "PatchedRegistryRequest": {"is_enabled": False},
}

REQUESTS = _SESSIONS | _RUNS | _ENDPOINTS | _FOLDERS | _OWN | _PEOPLE | _CLUSTER
