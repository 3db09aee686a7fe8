"""Ways to train a model on many ranks, each one object."""
