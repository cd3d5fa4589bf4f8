"""Talking to model servers: one module per dialect behind one interface, the HTTP under them, the embedded engine."""
