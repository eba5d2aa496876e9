"""Published weights by name: where they are and what is known of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One published file of weights."""

    name: str
    repo: str
    file: str
    num_parameters: int
    num_bytes: int
    """Of the tensors; the file is a little larger."""
    licence: str
    about: str


PRESETS = (
    Preset(
        name="lingbot-map-long",
        repo="robbyant/lingbot-map",
        file="lingbot-map-long.pt",
        num_parameters=1_157_943_540,
        num_bytes=4_631_774_160,
        licence="no tag seen; check before use",
        about="recommended for long videos",
    ),
    Preset(
        name="lingbot-map",
        repo="robbyant/lingbot-map",
        file="lingbot-map.pt",
        num_parameters=1_157_943_540,
        num_bytes=4_631_774_160,
        licence="no tag seen; check before use",
        about="balanced",
    ),
)
