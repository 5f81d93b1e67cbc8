"""The file server: the only process that opens the paths of folders. It has no database and no secret of the portal."""
