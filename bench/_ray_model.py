"""The model of ``bench/wave.py`` on Ray Serve, run by a Python that has ``ray[serve]``. Arguments: port, seconds of a
request, maximum of replicas, target. It prints the number of replicas that run, every half second."""

import asyncio
import sys
import time

from ray import serve

PORT, TAKES, MOST, TARGET = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])


@serve.deployment(
    max_ongoing_requests=1,
    ray_actor_options={"num_cpus": 0},
    autoscaling_config={"min_replicas": 1, "max_replicas": MOST, "target_ongoing_requests": TARGET},
)
class Model:
    """Answers one request at a time."""

    async def __call__(self, request: object) -> str:
        """Answer after the time that a request takes."""
        await asyncio.sleep(TAKES)
        return "ok"


serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Model.bind())
while True:
    (deployment,) = serve.status().applications["default"].deployments.values()
    print("replicas", deployment.replica_states.get("RUNNING", 0), flush=True)
    time.sleep(0.5)
