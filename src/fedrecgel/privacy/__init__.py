"""Everything between a device and the server."""
