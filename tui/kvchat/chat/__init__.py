"""Conversations with model servers: the service, and what each of its parts owns."""
