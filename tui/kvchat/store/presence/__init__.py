"""Which kvchat processes there are, and which of them uses what."""
