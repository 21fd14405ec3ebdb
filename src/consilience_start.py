"""The command `consilience` before any of it is loaded, which takes a second: Ctrl-C is one line from here on."""

import os
import signal
import sys
from types import FrameType


def stop(number: int, frame: FrameType | None) -> None:
    """Nothing has been read or written yet, so the process may end at once."""
    os.write(2, b"consilience: interrupted; nothing was written\n")
    os._exit(2)


def main() -> None:
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    from consilience.cli import shell

    shell.load(sys.argv[1:])
    shell.listen()
    shell.main()
