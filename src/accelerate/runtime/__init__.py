"""What is running now: the world of ranks, its process group, its collectives and its random state."""
