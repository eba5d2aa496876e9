"""Other people's videos as clips that a model describes; needs what reads videos and pictures."""

import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

import longtake
from benchmarks.familiarity import EVERY
from longtake.geometry.model import GeometryModel
from longtake.runtime.build import usual_settings
from longtake.video.resize import Preprocessor
from longtake.weights.familiarity import CLIP_FRAMES, FEWEST_FRAMES


def video_clips(network: GeometryModel, source: str) -> Iterator[Float[Tensor, "frames channels"]]:
    """Descriptors of a video's stretches of 48 frames, placed and scaled as a session's are; of the rest where it is
    all there is."""
    settings = usual_settings(network.config)
    prepare = Preprocessor(size=settings.image_size, patch=network.config.patch, sizes=settings.sizes)
    frames = (frame.image for frame in longtake.open_video(source) if frame.image is not None)
    for number, clip in enumerate(iter(lambda: list(itertools.islice(frames, CLIP_FRAMES)), [])):
        if len(clip) == CLIP_FRAMES or (number == 0 and len(clip) >= FEWEST_FRAMES):
            pixels = torch.stack([prepare(image).pixels for image in clip[::EVERY]])[None] / 255
            with torch.no_grad():
                yield network.descriptor(network.encode(pixels, network.grid(*pixels.shape[-2:])))[0]
