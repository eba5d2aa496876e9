"""Whether a picture was taken with the focal length of a take: with which its points fit those of known places best.

A network that looks at one picture guesses the lens it is used to, whatever the zoom. Points that two views share tell
it apart: seen through another lens, those away from the middle do not lie where a motion of the camera puts them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.places.evidence import matched_points
from longtake.places.key_view import KeyView
from longtake.places.pictures import DepthPicture
from longtake.places.registration import register

_RATIOS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 2.0)
"""Of a picture's focal length and a take's; the least between which points can tell are tried."""
_ALIKE = 1.15
"""Up to which a focal length is not said to be another."""
_MORE_SHARE, _MORE_POINTS = 1.1, 8
"""By which more points must agree on another one."""


def other_focal_ratio(places: Sequence[KeyView], view: KeyView) -> float | None:
    """How many times as long as that of `view.intrinsics` its focal length is by what places of a take show.

    None where they speak for the same one, or do not tell.
    """
    agreeing = np.sum([_agreeing(place, view) for place in places], axis=0) if places else np.zeros(len(_RATIOS))
    best, same = int(np.argmax(agreeing)), agreeing[_RATIOS.index(1.0)]
    is_alike = 1 / _ALIKE < _RATIOS[best] < _ALIKE
    is_told = agreeing[best] >= max(_MORE_SHARE * same, same + _MORE_POINTS)
    return _RATIOS[best] if is_told and not is_alike else None


def _agreeing(place: KeyView, view: KeyView) -> list[int]:
    """Points that agree on one motion with each ratio."""
    old, seed = DepthPicture.of(place), (place.frame_index, view.frame_index)
    pairs = matched_points(old, DepthPicture.of(view))
    numbers = []
    for ratio in _RATIOS:
        new = DepthPicture.of(replace(view, intrinsics=_zoomed(view.intrinsics, ratio)))
        found = register(replace(pairs, new=new.lifted(pairs.new_pixels)), old, new, seed)
        numbers.append(0 if found is None else int(found.agrees.sum()))
    return numbers


def _zoomed(intrinsics: Float64[Tensor, "3 3"], ratio: float) -> Float64[Tensor, "3 3"]:
    return intrinsics * torch.tensor([[ratio, 1, 1], [1, ratio, 1], [1, 1, 1]], dtype=intrinsics.dtype)
