"""Files by which containers of a session reach each other, and notes about images without SSH."""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path

from backendai.agent.backends.docker.create import ACCESS
from backendai.agent.backends.docker.disk.scratch import OWNER
from backendai.agent.backends.docker.engine import Engine
from backendai.agent.backends.docker.mounts import DockerMounts
from backendai.agent.backends.shared.cluster_files import CLIENT, SERVER, lacking, write_cluster
from backendai.base.wire.messages import KernelSpec


class DockerAccess:
    """Writes the files, and records kernels whose image lacks SSH."""

    def __init__(self, engine: Engine, mounts: DockerMounts) -> None:
        self._engine, self._mounts = engine, mounts

    def prepare(self, spec: KernelSpec, folder: Path) -> None:
        """Write the files of a cluster session's kernel into the folder that it mounts. Raises OSError."""
        write_cluster(folder, spec, ACCESS, owner=OWNER if os.geteuid() == 0 else None)

    def look(self, spec: KernelSpec, container_id: str) -> None:
        """Record whether the image of a cluster session's kernel lacks SSH; the container need not run. Raises
        requests.RequestException."""
        if spec.keys is None:
            return
        missing = [path.name for path in (Path(CLIENT), Path(SERVER)) if not self._has(container_id, str(path))]
        if told := ACCESS.no_ssh or lacking(missing):
            self._mounts.also_left_out(spec.kernel_id, told)

    def _has(self, container_id: str, path: str) -> bool:
        client = self._engine.client
        url = f"{client.base_url}/v{client.api_version}/containers/{container_id}/archive"
        response = client.head(url, params={"path": path}, timeout=client.timeout)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return False
        response.raise_for_status()
        return True
