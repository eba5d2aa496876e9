"""Models by name, on a device and in a precision by name."""

from pathlib import Path

from longtake.api.arguments import checked_arguments
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub import load
from longtake.language.load import LanguageModel
from longtake.places.loop_choice import NOT_NAMED, LoopChoice, choose_loops
from longtake.runtime.execution import AUTO, Execution, Precision, choose_device, choose_execution


@checked_arguments
def load_model(name: str | Path, *, device: str = AUTO, precision: str = AUTO) -> GeometryModel:
    """A geometry model by a name of `longtake models`, by its path, or by its place on the Hugging Face hub.

        model = longtake.load_model("micro-map")
        first = longtake.GeometrySession.from_pretrained(model)
        second = longtake.GeometrySession.from_pretrained(model)  # the weights are there once

    It holds weights and nothing else, so that any number of sessions can share it.
    """
    chosen = choose_execution(device, precision)
    return load.load_model(name, device=chosen.device, trunk_dtype=chosen.precision.dtype)


@checked_arguments
def load_language_model(name: str | Path, *, device: str = AUTO, precision: str = AUTO) -> LanguageModel:
    """A language model by its name in the package, by its folder, or by its place on the Hugging Face hub.

    language = longtake.load_language_model("micro-vqa")
    chat = longtake.DialogueSession.from_pretrained(language)
    """
    chosen = choose_execution(device, precision)
    return load.load_language_model(name, device=chosen.device, dtype=chosen.precision.dtype)


def require_same_device(asked: str, held: str) -> None:
    """Refuse a device by name that a loaded model is not on."""
    if asked != AUTO and choose_device(asked).type != held:
        raise SettingError(f"The model was loaded on {held}, but got device '{asked}'; leave it out, or load it there.")


def model_and_execution(
    model: str | Path | GeometryModel, device: str = AUTO, precision: str = AUTO, backend: str = AUTO
) -> tuple[GeometryModel, Execution]:
    """A model, loaded if it is named, and how it is computed; one that is loaded already stays where and as it is."""
    if isinstance(model, GeometryModel):
        product = model.get_parameter(sorted(model.product_weights())[0])
        held = next(known for known in Precision if known.dtype == product.dtype)
        require_same_device(device, product.device.type)
        return model, choose_execution(product.device.type, held if precision == AUTO else precision, backend)
    chosen = choose_execution(device, precision, backend)
    return load.load_model(model, device=chosen.device, trunk_dtype=chosen.precision.dtype), chosen


def loops_for(model: str | Path | GeometryModel, *, are_wanted: bool) -> LoopChoice:
    """Whether sessions of a model close loops: by its card, which is found by its name."""
    if not isinstance(model, GeometryModel):
        return load.loops_of(model, are_wanted=are_wanted)
    return NOT_NAMED if are_wanted else choose_loops(None, are_wanted=False)
