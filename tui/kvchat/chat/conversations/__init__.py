"""Conversations: the list, the open ones and their branches; no part of it asks a server for an answer."""
