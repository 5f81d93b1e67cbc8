"""Checks of the Kubernetes cluster of this machine's agent."""

from __future__ import annotations

import os
from collections.abc import Mapping

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.kubernetes.api.access import find_access
from backendai.agent.backends.kubernetes.api.client import Api
from backendai.agent.settings.config import read_settings
from backendai.base.core.errors import UserError
from backendai.ops.doctor.check import Check, ok, problem, warning

_MANIFEST = "apply kubernetes-agent.yaml in the namespace"
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# Group, resource, verbs: what the agent does in its namespace.
_RIGHTS = (
    ("", "pods", ("get", "list", "watch", "create", "patch", "delete")),
    ("", "pods/log", ("get",)),
    ("", "pods/exec", ("get", "create")),
    ("", "pods/portforward", ("get", "create")),
    ("", "secrets", ("get", "list", "create", "update", "delete")),
    ("", "events", ("list",)),
    ("", "persistentvolumeclaims", ("get",)),
    ("networking.k8s.io", "networkpolicies", ("list", "create", "patch", "delete")),
)


def kubernetes(environ: Mapping[str, str] = os.environ) -> list[Check]:
    """Return the findings about the cluster; empty if no agent of this machine uses one."""
    if environ.get("BACKENDAI_AGENT_BACKEND") != "kubernetes":
        return []
    try:
        pool = read_settings(environ, {"name": "local"}).pool
        access = find_access(pool.kubeconfig, pool.context, environ=environ)
        api = Api(access, pool.namespace or access.namespace or "default")
        version = str(api.ask("GET", "/version", seconds=10).get("gitVersion"))
        missing = [refused for right in _RIGHTS if (refused := _missing(api, *right))]
        sees_nodes = not _missing(api, "", "nodes", ("list",))
    except (BackendError, UserError) as error:
        return [problem("kubernetes", error.message, "see BACKENDAI_KUBERNETES_CONFIG in .env.example")]
    found = [ok("kubernetes", f"Kubernetes {version.removeprefix('v')}, namespace {api.namespace}")]
    if missing:
        found.append(problem("kubernetes rights", f"the agent may not: {'; '.join(missing)}", _MANIFEST))
    if not sees_nodes:
        text = "the agent may not look at nodes: capacity comes from a quota or BACKENDAI_AGENT_SLOTS"
        found.append(warning("kubernetes nodes", text, "bind the optional ClusterRole of kubernetes-agent.yaml"))
    return found


def _missing(api: Api, group: str, resource: str, verbs: tuple[str, ...]) -> str:
    """Return the refused ones of these verbs, as ``create, delete pods``; empty if none is refused."""
    kind, _, part = resource.partition("/")
    refused = []
    for verb in verbs:
        asked = {"namespace": api.namespace, "verb": verb, "group": group, "resource": kind}
        if part:
            asked["subresource"] = part
        if resource == "nodes":
            del asked["namespace"]
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = api.ask("POST", _REVIEW, {**body, "spec": {"resourceAttributes": asked}}, seconds=10)
        if not (answer.get("status") or {}).get("allowed"):
            refused.append(verb)
    return f"{', '.join(refused)} {resource}" if refused else ""
