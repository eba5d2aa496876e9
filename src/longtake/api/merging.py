"""Two mapped videos as one, in the words of `longtake merge`."""

from pathlib import Path

from longtake.api.arguments import checked_arguments
from longtake.api.exporting import with_bar
from longtake.api.locating import verifier_of
from longtake.api.take import Take, open_take
from longtake.pipeline.merging import merge_takes
from longtake.places.known_take import KnownTake
from longtake.takes import take as takes


@checked_arguments
def merge(first: str | Path | takes.Take, second: str | Path | takes.Take, out: str | Path) -> Take:
    """Join two mapped videos that share places into the new folder `out`; no model runs.

        both = longtake.merge("monday", "tuesday", "both")
        print(both, both.trajectory)

    Frames of the second follow those of the first, in the world and the unit of the first; what drifted in either is
    laid straight by the places that both know. Takes that share nothing are refused.
    """
    old, new = (take if isinstance(take, takes.Take) else takes.read_take(Path(take)) for take in (first, second))
    merge_takes(old, new, Path(out), verifier_of(KnownTake.finished(old).network), with_bar)
    return open_take(out)
