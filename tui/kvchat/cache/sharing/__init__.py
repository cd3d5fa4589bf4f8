"""Servers that share prefixes among all conversations: a compressed prefix trie."""
