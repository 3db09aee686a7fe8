"""The scripts of `accelerate test`; each also runs alone, with `accelerate launch`."""
