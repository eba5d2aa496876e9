"""Pictures that measurements draw: a figure, and its file; what draws is loaded when it is wanted."""

from pathlib import Path
from typing import Any

from longtake.errors import InputError
from longtake.extras import import_from_extra

DPI = 150


def require_plots() -> None:
    """Say at once what is missing, before anything is measured."""
    import_from_extra("matplotlib.figure", "plot", "Drawing")


def new_figure(width: float, height: float) -> Any:
    """In inches; not pyplot's, so that nothing is shared and nothing needs a screen."""
    return import_from_extra("matplotlib.figure", "plot", "Drawing").Figure((width, height), layout="constrained")


def save_figure(figure: Any, path: Path) -> None:
    """Into an image file, whose kind its name tells."""
    try:
        figure.savefig(path, dpi=DPI)
    except (OSError, ValueError) as error:
        raise InputError(f"The picture cannot be written to {path} ({error}); give a .png in a folder.") from error
