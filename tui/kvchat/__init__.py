"""kvchat: a terminal chat client that never makes the model server read a conversation twice."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # without one, Python writes warnings to the terminal

__version__ = "0.1.0"
