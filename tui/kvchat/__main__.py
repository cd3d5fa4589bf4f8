"""The program: `kvchat`, and `python -m kvchat`.

Ctrl+C ends it without a traceback from its first line to its last. While modules are imported, before there
is anything to keep, and after all is done, the signal itself ends the process.
"""

import _signal  # type: ignore[import-not-found]  # nothing is imported for it
import sys

_signal_is_ours = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _signal_is_ours:  # else whoever started this has it ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> int:
    """Run the command line and return the exit status."""
    if sys.platform == "win32":
        sys.exit("kvchat runs on Linux and macOS. On Windows, run it in WSL.")
    from kvchat.cli import main as run

    try:
        return run()
    finally:
        if _signal_is_ours:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
