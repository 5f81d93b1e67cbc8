"""A replica of several kernels: its main kernel answers with what the others compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import until
from tests.system.platform import Platform
from tests.system.tiny_replica import tiny_replica

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.ci, pytest.mark.usefixtures("tiny_image")]
COMMAND = """
case "$BACKENDAI_CLUSTER_ROLE" in
main)
  mkdir www
  until nc sub1 5000 </dev/null >www/index.html && test -s www/index.html; do sleep 0.2; done
  exec httpd -f -p 8000 -h www ;;
*) while :; do echo "computed by $BACKENDAI_CLUSTER_HOST" | nc -l -p 5000; done ;;
esac
""".strip()


def test_an_endpoint_answers_from_a_replica_of_two_kernels(tmp_path: Path) -> None:
    with Platform(tmp_path) as platform:
        client = platform.client
        small = {"cpu": "0.2", "mem": "32m"}
        with tiny_replica(client, "pair", COMMAND, resources=small, cluster_size=2) as answer:
            until(lambda: "computed by sub1" in answer(), 90, "the replica answers", last=answer)
            (session,) = client.sessions()
            assert session["type"] == "inference"
            kernels = client.session(session["id"])["kernels"]
            assert [one["hostname"] for one in kernels] == ["main1", "sub1"]
        platform.audit()
