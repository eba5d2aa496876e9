"""One of several words."""

from collections.abc import Sequence

from longtake.errors import SettingError


def one_of(what: str, given: str, known: Sequence[str]) -> str:
    """A word that is among the known ones."""
    if given not in known:
        raise SettingError(f"Expected {what} as {', '.join(known)}, but got '{given}'.")
    return given
