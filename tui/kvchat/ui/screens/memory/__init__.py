"""The memory, for the manager."""
