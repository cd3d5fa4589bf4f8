"""Ollama, by its native interface."""
