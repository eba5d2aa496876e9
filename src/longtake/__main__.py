"""`python -m longtake` is the command `longtake`."""

from longtake.cli.main import main

if __name__ == "__main__":
    main()
