"""The portal's settings, with the address for many agents."""

from backendai.settings.portal import *  # noqa: F403

ROOT_URLCONF = "bench.many_agents.urls"
