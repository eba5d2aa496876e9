"""How a helper process hangs on the one that started it, from before it imports anything that takes long."""

import os
import select
import signal
import sys
import threading


def hang_on_parent() -> None:
    """Leave to the parent what asks for an end, and end with it, at once, however it ended: its pipe hangs up then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    pipe = select.poll()
    pipe.register(sys.stdin.fileno(), 0)  # what is sent through it is for others; that it hangs up is always told
    pipe.poll()
    os._exit(1)
