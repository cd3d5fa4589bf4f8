"""Conversations leaving kvchat as files, and coming back: one module per format."""
