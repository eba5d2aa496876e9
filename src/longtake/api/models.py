"""Models by name, on a device and in a precision by name."""

from pathlib import Path

import torch

from longtake.api.choices import AUTO, choose_device, one_of
from longtake.geometry.model import GeometryModel
from longtake.hub import load
from longtake.language.load import LanguageModel

_PRECISIONS = (AUTO, "fp32")


def load_model(name: str | Path, *, device: str = AUTO, precision: str = AUTO) -> GeometryModel:
    """A geometry model by a name of `longtake models`, by its path, or by its place on the Hugging Face hub.

        model = longtake.load_model("micro-map")
        first = longtake.GeometrySession.from_pretrained(model)
        second = longtake.GeometrySession.from_pretrained(model)  # the weights are there once

    It holds weights and nothing else, so that any number of sessions can share it.
    """
    return load.load_model(name, device=choose_device(device), trunk_dtype=_precision(precision))


def load_language_model(name: str | Path, *, device: str = AUTO, precision: str = AUTO) -> LanguageModel:
    """A language model by its name in the package, by its folder, or by its place on the Hugging Face hub.

    language = longtake.load_language_model("micro-vqa")
    chat = longtake.DialogueSession.from_pretrained(language)
    """
    return load.load_language_model(name, device=choose_device(device), dtype=_language_precision(precision))


def _precision(name: str) -> torch.dtype:
    """The number type of a geometry model's products and memory."""
    one_of("precision", name, _PRECISIONS)
    return torch.float32


def _language_precision(name: str) -> torch.dtype | None:
    """The number type of a language model; None for float32 on the CPU and elsewhere that of its weights."""
    return None if one_of("precision", name, _PRECISIONS) == AUTO else torch.float32
