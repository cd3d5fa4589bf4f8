"""kvchat: a terminal chat client that never makes the model server read a conversation twice."""

__version__ = "0.1.0"
