"""Images and resource presets, from which people choose at a launch."""

from backendai.catalog.models.images import Image, ImageAlias, ImageOnAgent
from backendai.catalog.models.presets import ResourcePreset
from backendai.catalog.models.pulls import ImagePull
from backendai.catalog.models.registries import Registry
from backendai.catalog.models.shares import ImageShare

__all__ = ["Image", "ImageAlias", "ImageOnAgent", "ImagePull", "ImageShare", "Registry", "ResourcePreset"]
