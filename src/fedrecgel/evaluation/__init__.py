"""Ranks of held-out items and the metrics made of them."""
