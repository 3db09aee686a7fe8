"""Parts of the training loop that the Accelerator puts together."""
