"""Capabilities that an agent reports. The portal checks capabilities and never the name of a backend."""

from __future__ import annotations

from enum import StrEnum


class Capability(StrEnum):
    """An ability of an agent, or a property that changes what the portal sends to it. Abilities to run jobs are
    reported as ``job.KIND`` and not listed here."""

    IMAGES = "images"  # kernels start from container images, which the agent can pull
    LISTED_IMAGES = "listed-images"  # reports which images it has; other images must be pulled or built
    NATIVE = "native"  # kernels are processes of the machine, on its network, and run an image's native program
    SIMULATED = "simulated"  # kernels run nothing
    ISOLATED = "isolated"  # programs in kernels reach no other machine
    APPS = "apps"  # the gateway reaches ports of kernels, and other users cannot
    SERVING = "serving"  # the gateway reaches ports of inference sessions
    COMMIT = "commit"  # saves kernels as images
    PUSH = "push"  # pushes saved images to a registry
    OWN_NETWORK = "own-network"  # each session has a network of its own
    CLUSTER_NETWORK = "cluster-network"  # a session can have kernels on this agent and on others
    CLUSTER_FILES = "cluster-files"  # kernels of a session get host files, and SSH to each other
    SIZE_LIMITS = "size-limits"  # limits how much a kernel writes outside its folders
    FOLDERS = "folders"  # kernels can mount folders
    DEVICES = "devices"  # kernels can get accelerators
    HOMES = "homes"  # stores homes of kernels in folders, and starts kernels from them
    READINGS = "readings"  # measures the resource use of kernels
    TERMINAL = "terminal"
    EXECUTION = "execution"  # runs code in interactive sessions, and moves files in and out
