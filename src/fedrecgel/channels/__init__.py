"""What happens to an upload on its way from a device to the server."""
