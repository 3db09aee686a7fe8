"""Pure functions over tensors and nn.Module."""
