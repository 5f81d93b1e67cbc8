"""What one picks: images and resource presets."""

from backendai.catalog.models.images import Image, ImageAlias, ImageOnAgent
from backendai.catalog.models.presets import ResourcePreset

__all__ = ["Image", "ImageAlias", "ImageOnAgent", "ResourcePreset"]
