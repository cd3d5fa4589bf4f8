"""The cache as the client knows it. Pure: no I/O.

Here: the honest accounting of every turn, speed, price and warmth. In `llamacpp`: a simulator of its slots and how to
use them best. In `sharing`: a trie for servers that share prefixes. In `causes`: why a turn was read again.
"""
