"""The true trajectory of a mapped video, and how far the result is from it: `truth.json`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from longtake.errors import InputError
from longtake.takes.atomic_files import replace_file
from longtake.takes.fields import JsonObject

TRUTH_NAME = "truth.json"
_FARTHEST = 1e30
"""Places beyond cannot be reckoned with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure as text, of the result and of a baseline that does not look at the video."""

    name: str
    result: str
    baseline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """The true camera centres, moved into the result's world, and the figures."""

    about: str
    """Whose truth it is, and how it was aligned."""
    centres: Float64[np.ndarray, "frames 3"]
    figures: tuple[Figure, ...]

    @classmethod
    def parse(cls, text: bytes, where: str) -> "Truth":
        record = JsonObject.parse(text, where)
        figures = tuple(
            Figure(name=row.text("name"), result=row.text("result"), baseline=row.optional("baseline", row.text))
            for row in record.objects("figures")
        )
        rows = [row.numbers("centre", 3) for row in record.objects("way")]
        if not rows:
            raise InputError(f"Expected a true way in {where}, but it has no places; compare with the truth again.")
        return cls(about=record.text("about"), centres=np.clip(rows, -_FARTHEST, _FARTHEST), figures=figures)

    def write(self, path: Path) -> None:
        record = {
            "about": self.about,
            "figures": [asdict(figure) for figure in self.figures],
            "way": [{"centre": centre} for centre in self.centres.tolist()],
        }
        replace_file(path, json.dumps(record, indent=1).encode())


def truth_section(truth: Truth | None) -> str:
    """A table of the figures; nothing where no truth is known."""
    if truth is None:
        return ""
    return (
        '<section aria-labelledby="truth-heading"><h2 id="truth-heading">Against the truth</h2>'
        f'<p class="hint">{escape(truth.about)}</p>'
        '<table class="truth"><thead><tr><th scope="col"></th><th scope="col">this map</th>'
        f'<th scope="col">without looking</th></tr></thead><tbody>{_rows(truth.figures)}</tbody></table></section>'
    )


def _rows(figures: Sequence[Figure]) -> str:
    return "".join(
        f'<tr><th scope="row">{escape(figure.name)}</th><td>{escape(figure.result)}</td>'
        f"<td>{escape(figure.baseline or '')}</td></tr>"
        for figure in figures
    )
