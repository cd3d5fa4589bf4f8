"""Saved states: what slots hold, on the disk."""
