"""Batched mathematics: gradients, sharpness-aware steps, optimisers, models. No clients, no server, no files."""
