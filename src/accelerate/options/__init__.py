"""What a user can ask for: values, no work; loads without torch."""
