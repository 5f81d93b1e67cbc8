"""The file server: the only process that opens folders. It uses no database and no secret of the portal."""
