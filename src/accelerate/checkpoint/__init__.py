"""Files of a checkpoint."""
