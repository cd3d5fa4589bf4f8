"""Ask a model what it learned about the user, and check its answer. Pure."""
