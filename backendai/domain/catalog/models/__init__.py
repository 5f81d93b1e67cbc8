"""Images and resource presets, from which people choose at a launch."""

from backendai.domain.catalog.models.images import Image, ImageAlias, ImageOnAgent
from backendai.domain.catalog.models.presets import ResourcePreset
from backendai.domain.catalog.models.pulls import ImagePull
from backendai.domain.catalog.models.registries import Registry
from backendai.domain.catalog.models.shares import ImageShare

__all__ = ["Image", "ImageAlias", "ImageOnAgent", "ImagePull", "ImageShare", "Registry", "ResourcePreset"]
