"""The command line, as `longtake` and as `python -m longtake`."""

import sys

from longtake.cli.signals import INTERRUPTED, handling_ends, interrupt


def main() -> None:
    """Run the command that the arguments name; whatever asks for an end is heard from here on."""
    try:
        with handling_ends(interrupt):
            from longtake.cli.main import main as run

            run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
