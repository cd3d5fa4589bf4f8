"""The cache as the client knows it. Pure: no I/O. Here: the honest accounting of every turn."""
