"""`python -m kvchat.cli`."""

import sys

from kvchat.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
