"""Memory: what kvchat remembers of the user and their work. Markdown files are the truth, the rest is derived."""
