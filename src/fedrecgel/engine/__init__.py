"""Where clients live: the training loop, the private store, the local simulator, checkpoints."""
