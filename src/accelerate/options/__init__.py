"""What a user can ask for: plain values that do no work and load without torch."""
