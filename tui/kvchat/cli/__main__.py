"""`python -m kvchat.cli`."""

import sys

from kvchat.cli import main

if __name__ == "__main__":
    sys.exit(main())
