"""Weights that are not where the model computes: hooks, storage, loading."""
