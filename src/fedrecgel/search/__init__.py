"""Hyper-parameters searched on validation items."""
