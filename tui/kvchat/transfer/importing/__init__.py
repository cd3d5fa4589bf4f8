"""Conversations of other programs, and of other kvchats, coming in: one module per format.

A format is recognised by what is in a file, never by its name; a module makes `Thread` values of it and
nothing else, and what it cannot take over it counts. Nothing is loaded whole but one conversation.
"""

FORMATS = ("lossless", "chatgpt", "claude", "open_webui", "llama_ui", "lm_studio", "openai", "oterm", "llm", "aichat")
"""The formats that are recognised, each with its module here."""
