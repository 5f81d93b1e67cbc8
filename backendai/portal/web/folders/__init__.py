"""The pages of folders: the list, the explorer of one folder, sharing and settings."""
