"""Capabilities that an agent reports. The portal checks these and never the name of a backend."""

from __future__ import annotations

from enum import StrEnum


class Capability(StrEnum):
    """An ability of an agent, or a trait that changes what the portal sends it. Abilities to run jobs are not listed
    here: agents report them as ``job.KIND``."""

    IMAGES = "images"  # kernels start from container images, which the agent can pull
    LISTED_IMAGES = "listed-images"  # reports its images; others have to come from a registry or a build
    NATIVE = "native"  # kernels are processes of the machine: they run an image's native program, on its network
    SIMULATED = "simulated"  # kernels run nothing
    APPS = "apps"  # ports of kernels are reached through the gateway and kept from others
    SERVING = "serving"  # ports of inference sessions are reached through the gateway
    COMMIT = "commit"  # saves kernels as images
    PUSH = "push"  # pushes saved images to a registry
    OWN_NETWORK = "own-network"  # each session has a network of its own
    CLUSTER_NETWORK = "cluster-network"  # kernels of one session can be on this agent and others
    SIZE_LIMITS = "size-limits"  # limits how much a kernel writes outside its folders
    FOLDERS = "folders"  # kernels can mount folders
    DEVICES = "devices"  # kernels are given accelerators
    READINGS = "readings"  # measures what kernels use
    TERMINAL = "terminal"
    EXECUTION = "execution"  # runs code in interactive sessions, and moves files in and out
