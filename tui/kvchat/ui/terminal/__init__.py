"""The terminal: what comes in from it, and what may go out to it."""
