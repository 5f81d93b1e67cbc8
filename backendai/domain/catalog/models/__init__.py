"""Images and resource presets, from which people choose at a launch."""

from backendai.domain.catalog.models.images import Image, ImageAlias, ImageOnAgent, ImagePull, ImageShare
from backendai.domain.catalog.models.presets import ResourcePreset
from backendai.domain.catalog.models.registries import Registry

__all__ = ["Image", "ImageAlias", "ImageOnAgent", "ImagePull", "ImageShare", "Registry", "ResourcePreset"]
