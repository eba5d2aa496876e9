"""Which videos there are: a folder or tree of them, a glob, or a list as text, CSV or Parquet.

A list may be long: it is gone through row by row, once to check it as a whole, and then again as videos are mapped.
"""

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from longtake.batch.listings import LISTS, NAME, SOURCE, SPANS, Numbered, content_of_list, is_path
from longtake.batch.naming import name_of, plain_name, told_apart
from longtake.batch.row_check import RowCheck
from longtake.batch.row_settings import settings_of, whole_number
from longtake.errors import InputError, LongtakeError
from longtake.takes.atomic_files import resolved
from longtake.takes.header import is_take
from longtake.types import counted
from longtake.video.folders import VIDEO_SUFFIXES, natural_order, pictures_in

_MOST_TOLD = 5
"""Rows that are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A video that is to be mapped."""

    name: str
    """Of its folder."""
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a `MapRequest`."""
    spans: int = 1
    """Parts that are mapped side by side."""


class Manifest:
    """Rows in an order that stays; iterate as often as needed."""

    def __init__(
        self,
        title: str,
        read: Callable[[], Iterator[Numbered]],
        defaults: Mapping[str, Any],
        *,
        spans: int = 1,
        root: Path | None = None,
        results: Path | None = None,
    ) -> None:
        """Refuses a list that cannot be mapped as a whole, with a sentence for each row, before any video of it is.

        `root` is the folder below which videos are called by what they have of their own, `results` where they go.
        """
        self.title, self._read, self._defaults, self._spans, self._root = title, read, defaults, spans, root
        self._num_rows = 0
        seen: dict[bytes, int] = {}
        wrong, check = _WrongRows(title), RowCheck(results)
        for line, row in self._rows():
            problem = row if isinstance(row, LongtakeError) else check.problem(row.settings)
            if isinstance(row, LongtakeError) or problem is not None:
                wrong.add(f"Row {line}", f"cannot be used: {problem}")
                continue
            digest = hashlib.blake2b(row.name.encode(), digest_size=8).digest()
            if digest in seen:
                wrong.add(
                    f"Rows {seen[digest]} and {line}",
                    f"would both go to '{row.name}'; give each its own name, in a column 'name' of a .csv.",
                )
            seen.setdefault(digest, line)
            self._num_rows += 1
        wrong.require_none()
        if not self._num_rows:
            raise InputError(f"Expected videos in {title}, but there are none; check the path.")

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[Row]:
        for _, row in self._rows():
            assert isinstance(row, Row)  # as it was checked
            yield row

    def is_usual(self, row: Row, *names: str) -> bool:
        """Whether a row says nothing of its own of these settings."""
        return all(row.settings.get(name) == self._defaults.get(name) for name in names)

    def _rows(self) -> Iterator[tuple[int, Row | LongtakeError]]:
        """Each with its number; what is wrong with one in its place."""
        for line, written in self._read():
            try:
                yield line, written if isinstance(written, InputError) else self._row(written)
            except LongtakeError as error:
                yield line, error

    def _row(self, written: Mapping[str, object]) -> Row:
        rest = dict(written)
        source, name, spans = _source_in(rest), rest.pop(NAME, None), rest.pop(SPANS, None)
        if source is None:
            raise InputError("Expected a video in every row, but its 'source' is empty.")
        rest.pop(SOURCE)
        row = Row(
            name=plain_name(str(name)) if name not in (None, "") else name_of(source, self._root),
            source=str(Path(source).absolute()) if is_path(source) else source,  # workers may be elsewhere
            settings={**self._defaults, **settings_of(rest)},
            spans=self._spans if spans in (None, "") else _whole(spans),
        )
        if row.spans > 1 and row.settings.get("continue_from") is not None:
            raise InputError(
                f"Expected one span of a video that continues another result, but got {row.spans}; leave spans out, or "
                "continue_from and merge the results."
            )
        return row


class _WrongRows:
    """What keeps a list from being used: the first few in words, the others as a number."""

    def __init__(self, title: str) -> None:
        self._title, self._told, self._num_more = title, list[tuple[str, str]](), 0

    def add(self, which: str, what: str) -> None:
        if len(self._told) < _MOST_TOLD:
            self._told.append((which, what))
        else:
            self._num_more += 1

    def require_none(self) -> None:
        if not self._told:
            return
        (which, what), *others = self._told
        sentences = [f"{which} of {self._title} {what}", *(f"{which} {what}" for which, what in others)]
        if self._num_more:
            sentences.append(f"{counted(self._num_more, 'more row')} {'is' if self._num_more == 1 else 'are'} wrong.")
        raise InputError(" ".join(sentences))


def _as_row(video: object) -> dict[str, object]:
    """As a program lists it."""
    if isinstance(video, str | Path):
        return {SOURCE: str(video)}
    if isinstance(video, Mapping) and all(isinstance(name, str) for name in video):
        return dict(video)
    raise InputError(f"Expected each video as a text, a path, or its settings by name, but got {video!r:.100}.")


def open_manifest(
    named: str | Path | Iterable[object],
    defaults: Mapping[str, Any] | None = None,
    *,
    spans: int = 1,
    apart_from: Path | None = None,
) -> Manifest:
    """The videos that a text names, or a program lists; `defaults` are settings of rows that say nothing else.

    What lies in the folder `apart_from`, where results go, is no video of a tree; a result there that is continued may
    come later.
    """
    make = partial(Manifest, defaults=settings_of(defaults or {}), spans=spans, results=apart_from)
    if not isinstance(named, str | Path):
        rows = tuple(map(_as_row, named))
        return make("the list", partial(enumerate, rows, 1))
    text, path = str(named), Path(named)
    _require_readable(text)
    if path.is_dir():
        videos = list(_videos_below(path, apart_from))
        if not videos and pictures_in(path):
            return make(text, partial(enumerate, [{SOURCE: text}], 1), root=path.parent)
        if not videos:
            raise InputError(
                f"Expected videos in the folder {path} or below it, or pictures in it, but there are none; check the "
                f"path, or name several folders of pictures, as {path}/*."
            )
        return make(text, _told_apart(videos, path), root=path)
    if path.is_file() and (rows_of := LISTS.get(path.suffix.lower())) is not None:
        return make(text, partial(rows_of, path, content_of_list(path)), root=path.parent)
    if path.is_file() or text.startswith("world:"):
        return make(text, partial(enumerate, [{SOURCE: text}], 1), root=path.parent)
    found = sorted(glob.glob(text, recursive=True), key=natural_order) if glob.has_magic(text) else []  # noqa: PTH207
    if not found:
        raise InputError(
            f"Expected a folder of videos, a glob, or a list as .txt, .csv or .parquet, but there is no '{text}'; "
            "check the path."
        )
    root = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts[:-1]))
    return make(text, _told_apart(found, root), root=root)


def _require_readable(text: str) -> None:
    """And said at all: without a word, the folder of the shell would be meant."""
    if not text:
        raise InputError("Expected videos, but got an empty text; name a folder, a glob or a list.")
    try:
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass  # it may be anything else
    except OSError as error:
        raise InputError(
            f"'{text:.200}' cannot be looked at ({error.strerror}); check the path and its permissions."
        ) from error


def _told_apart(videos: list[str], root: Path) -> Callable[[], Iterator[Numbered]]:
    names = [name_of(video, root) for video in videos]
    counts = Counter(names)
    rows = [
        {SOURCE: video} if counts[name] == 1 else {SOURCE: video, NAME: told_apart(name, video, root)}
        for video, name in zip(videos, names, strict=True)
    ]
    return partial(enumerate, rows, 1)


def _videos_below(folder: Path, apart_from: Path | None) -> Iterator[str]:
    """Of a whole tree, in natural order; takes are results, not sources."""
    results = None if apart_from is None else resolved(apart_from)
    for here, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(
            (
                name
                for name in folders
                if not name.startswith(".")
                and (results is None or Path(here, name).resolve() != results)
                and not is_take(Path(here, name))
            ),
            key=natural_order,
        )
        for name in sorted(names, key=natural_order):
            if Path(name).suffix.lower() in VIDEO_SUFFIXES and not name.startswith("."):
                yield str(Path(here, name))


def _unreadable(error: OSError) -> None:
    raise InputError(f"The folder {error.filename} cannot be read ({error.strerror}); check its permissions.")


def _source_in(written: Mapping[str, object] | InputError) -> str | None:
    """None where a row has none."""
    return None if isinstance(written, InputError) else str(written.get(SOURCE) or "").strip() or None


def _whole(value: object) -> int:
    try:
        number = whole_number(value)
    except ValueError:
        number = 0
    if number < 1:
        raise InputError(f"Expected spans as a whole number from 1, but got '{value}'.")
    return number
