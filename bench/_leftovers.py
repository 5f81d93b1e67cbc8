"""Removing what a benchmark's platform left in the engine and among the mounts, also after a crash."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import docker
from docker.errors import APIError, DockerException

from backendai.agent.backends.docker.engine import PREFIX

BARE = "bench"  # the deployment that bare starts are marked with
_REMOVAL_SECONDS = 30.0


def clean(deployment: str, folder: Path) -> None:
    """Remove the containers and networks of this deployment and of bare starts, and unmount what is under folder."""
    with contextlib.suppress(DockerException):
        client = docker.APIClient(version="auto", timeout=120)
        for label in [f"{PREFIX}deployment={name}" for name in (BARE, deployment) if name]:
            _remove_containers(client, label)
            for network in client.networks(filters={"label": [label]}):
                with contextlib.suppress(APIError):
                    client.remove_network(network["Id"])
    mounted = [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in mounted:
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False)


def _remove_containers(client: docker.APIClient, label: str) -> None:
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while left := client.containers(all=True, filters={"label": [label]}):
        for container in left:
            with contextlib.suppress(APIError):  # gone, or somebody is at it
                client.remove_container(container["Id"], force=True, v=True)
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)
