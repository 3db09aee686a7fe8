"""Data loaders that give each rank its share."""
