"""Memory: what kvchat remembers of the person and their work. Markdown files are the truth, the rest is derived."""
