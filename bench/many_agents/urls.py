"""The portal's addresses, and the one at which a process speaks for many agents."""

from django.urls import path

from backendai.urls import handler500
from backendai.urls import urlpatterns as of_the_portal
from bench.many_agents import node_api

__all__ = ["handler500", "urlpatterns"]

urlpatterns = [path("node/v1/fleet", node_api.fleet, name="node-fleet"), *of_the_portal]
