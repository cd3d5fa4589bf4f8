"""Searching messages: the full-text index, and the words that are looked for."""
