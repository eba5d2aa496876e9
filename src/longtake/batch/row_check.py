"""What is wrong with the settings of a row, as far as that shows before its video is opened or a model is loaded."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from longtake.api.locating import open_earlier
from longtake.api.map_request import MapRequest
from longtake.errors import LongtakeError
from longtake.takes.atomic_files import resolved

_MOST_KEPT = 1024
"""Different settings, and results that are continued; others may be looked at again."""


class RowCheck:
    """Of one list. What rows ask for in the same words is looked at once: of long lists, most do.

    Masks and sky models are not looked at: they are a video's own, and cost that alone.
    """

    def __init__(self, results: Path | None = None) -> None:
        """Below the folder `results`, a result that is continued may be made while the list is worked through."""
        self._results = None if results is None else resolved(results)
        self._of_words = lru_cache(_MOST_KEPT)(_problem_of_words)
        self._of_earlier = lru_cache(_MOST_KEPT)(_problem_of_earlier)

    def problem(self, settings: Mapping[str, Any]) -> LongtakeError | None:
        """None where nothing is wrong."""
        found = self._of_words(tuple(settings.items()))
        earlier = settings.get("continue_from")
        if found is not None or earlier is None or self._may_come(Path(earlier)):
            return found
        return self._of_earlier(Path(earlier))

    def _may_come(self, earlier: Path) -> bool:
        return self._results is not None and resolved(earlier).is_relative_to(self._results)


def _problem_of_words(settings: tuple[tuple[str, Any], ...]) -> LongtakeError | None:
    """Without loops, whose card is a file of the model: to read it takes longer than all else."""
    request = replace(MapRequest(**dict(settings)), mask=None, sky=None, continue_from=None, loops=False)
    try:
        request.planned()
    except LongtakeError as error:
        return error
    return None


def _problem_of_earlier(folder: Path) -> LongtakeError | None:
    try:
        open_earlier(folder)
    except LongtakeError as error:
        return error
    return None
