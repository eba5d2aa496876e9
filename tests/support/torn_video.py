"""Pictures as a video of which some frames cannot be read."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np

from longtake.video.frame import PendingFrame
from longtake.video.reading import Source
from longtake.video.sampling import Extent


class TornVideo(Source):
    """Ten frames a second."""

    def __init__(self, name: str, pictures: Sequence[np.ndarray], torn: Collection[int]) -> None:
        super().__init__(name, is_live=False)
        self._pictures, self._torn = pictures, torn

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=len(self._pictures))

    def all_frames(self) -> Iterator[PendingFrame]:
        for index, picture in enumerate(self._pictures):
            if index in self._torn:
                yield PendingFrame.unreadable(index / 10, "It is torn.")
            else:
                yield PendingFrame(index / 10, partial(np.asarray, picture))
