"""What a server's prompt cache holds, as the client knows it. Pure: no I/O.

In `llamacpp`: a simulator of its slots and how to use them best. In `causes`: why a turn was prefilled again. `price`:
what an act would prefill.
"""
