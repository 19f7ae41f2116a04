"""From raw files to a federation of clients."""
