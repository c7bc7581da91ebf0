"""What the program `rollsim` calls: an interrupt is one line also before and after the command itself."""

import signal
import sys


def main() -> None:
    """Import the command line and run it."""
    try:
        from rollsim.cli import app
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    try:
        app.main()
    finally:
        # All is said and written: what is left is Python's own end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
