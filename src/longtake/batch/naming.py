"""What the folder of a video is called: by where it lies, never by what lies beside it.

So a name stays when other videos come or go, and what was mapped under it is found again.
"""

import hashlib
import re
from pathlib import Path

from longtake.batch.listings import is_path
from longtake.errors import InputError
from longtake.takes.atomic_files import UNFINISHED
from longtake.video.addresses import shown_address
from longtake.video.folders import VIDEO_SUFFIXES

TABLE_NAME, LEASE_NAME = "videos.csv", "batch-lease.json"
"""Of files beside the folders."""
JOINING, COMING = ".joining", ".coming"
"""End the names of folders that are under way."""
_FILES, _ENDINGS = ("|".join(map(re.escape, own)) for own in ((TABLE_NAME, LEASE_NAME), (JOINING, COMING, UNFINISHED)))
_OWN = re.compile(rf"{_FILES}|.*({_ENDINGS}|\.span-\d+-of-\d+)", re.IGNORECASE)
"""What a batch calls its own, on file systems that know no capitals too."""
_USUAL_ENDING = ".mp4"
"""Which need not be told from others."""
_MOST_BYTES = 200
"""Of a name: file systems take 255, and what is made on the way to a result has a longer one."""


def name_of(source: str, root: Path | None) -> str:
    """Of a path below `root`, what it has of its own; of others, and without a root, all that is written."""
    if not is_path(source):
        return _free(_plain(shown_address(source)), shown_address(source))
    text = str(_below(source, root))
    ending = Path(text).suffix
    if ending.lower() in VIDEO_SUFFIXES:
        stem = text.removesuffix(ending)
        text = stem if ending.lower() == _USUAL_ENDING else f"{stem}_{ending[1:]}"
    return _free(_plain(text), text)


def told_apart(name: str, source: str, root: Path) -> str:
    """For one that another would have too, as of `a b.mp4` and `a_b.mp4`."""
    return f"{name}-{_digest(str(_below(source, root)))}"


def plain_name(name: str) -> str:
    """One that was chosen, if it can be that of a folder anywhere."""
    if name != _plain(name):
        raise InputError(f"Expected a name of letters, digits, '.', '_' and '-', but got '{name}'.")
    if _OWN.fullmatch(name):
        raise InputError(f"Expected another name than '{name}', by which a batch calls what it makes itself.")
    if (num_bytes := len(name.encode())) > _MOST_BYTES:
        raise InputError(f"Expected a name of {_MOST_BYTES} bytes at most, but '{name[:20]}…' has {num_bytes}.")
    return name


def span_name(name: str, number: int, count: int) -> str:
    """Of the folder of one of so many spans of a video."""
    return f"{name}.span-{number}-of-{count}"


def _below(source: str, root: Path | None) -> Path:
    if root is None:
        return Path(source)
    path, above = Path(source).absolute(), root.absolute()
    return path.relative_to(above) if path.is_relative_to(above) else path


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip("._") or "video"


def _free(name: str, of: str) -> str:
    """One that is too long, or that a batch has for itself, with what all of it comes to behind it."""
    if _OWN.fullmatch(name):
        name = f"{name}-{_digest(of)}"
    if len(name.encode()) <= _MOST_BYTES:
        return name
    return f"{name.encode()[: _MOST_BYTES // 2].decode(errors='ignore')}-{_digest(of)}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=4).hexdigest()
