"""The version of the platform, which portal and agents tell."""

VERSION = "1.0"
