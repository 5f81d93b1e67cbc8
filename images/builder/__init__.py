"""Builds the kernel images that come with the platform; the command is ``bin/build-images``."""
