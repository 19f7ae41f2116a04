"""Compiled back ends of models."""
