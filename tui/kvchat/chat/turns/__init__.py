"""Turns: what is asked, how it goes out and comes back, what waits behind it."""
