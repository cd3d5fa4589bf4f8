"""kvchat: a terminal chat client that keeps the model server from reading a conversation twice."""

import os
import sys

__version__ = "0.2.0"

# Python's own modules come first: a secrets.py in the working folder, or on PYTHONPATH, is none of them.
_OWN = os.path.dirname(os.__file__)  # noqa: PTH120 (pathlib would be imported for it)
sys.path.sort(key=lambda entry: entry not in (_OWN, f"{_OWN}/lib-dynload"))
