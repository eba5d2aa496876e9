"""What `longtake map --server` writes: files that the server makes of a session, fetched and unpacked into a folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from longtake.errors import InputError, SettingError
from longtake.exports.formats import FORMATS
from longtake.server.client import RemoteSession
from longtake.takes.atomic_files import writing
from longtake.takes.header import POSES_NAME

_TAKE = ("depth", "confidence", "images")
"""Formats that a take holds, as it does the poses."""
_TAKE_FOLDER = "take"
"""Of the archive that a server makes of a take."""
_EXPORTED = tuple(name for name in FORMATS if name not in ("tum", "take"))


def parse_formats(text: str) -> tuple[str, ...]:
    """Formats that a server can give, in the order of their names."""
    names = tuple(dict.fromkeys(text.split(",")))
    known = ("tum", *_TAKE, *_EXPORTED)
    for name in names:
        if name not in known:
            raise SettingError(f"Expected --format of {', '.join(known)} with --server, but got '{name}'.")
    return names


def require_place(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something, but what was written there before where it may be replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite or not (out / POSES_NAME).is_file():
        raise InputError(f"{out} holds something already; name another folder, or replace a result with --overwrite.")


def fetch_results(session: RemoteSession, out: Path, formats: Sequence[str]) -> None:
    """All of these into the folder, which is complete or as it was."""
    with writing(str(out)):
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as name:
            made = Path(name) / "made"
            made.mkdir()
            _fetch(session, made, formats)
            if out.exists():
                shutil.rmtree(out)
            made.replace(out)


def _fetch(session: RemoteSession, folder: Path, formats: Sequence[str]) -> None:
    if any(name in _TAKE for name in formats):
        _unpack(session, "take.zip", folder)
        _move_up(folder / _TAKE_FOLDER)
    else:
        session.download(POSES_NAME, folder / POSES_NAME)
    for name in formats:
        if name in _EXPORTED and Path(FORMATS[name].file).suffix:
            session.download(f"export?format={name}", folder / FORMATS[name].file)
        elif name in _EXPORTED:
            _unpack(session, f"export?format={name}", folder)


def _unpack(session: RemoteSession, name: str, folder: Path) -> None:
    """An archive of a folder, beside what is there."""
    packed = folder / "fetched.zip"
    session.download(name, packed)
    try:
        with ZipFile(packed) as archive:
            archive.extractall(folder)  # which leaves no name outside of the folder
    except BadZipFile as error:
        raise InputError(f"Expected an archive from the server, but what came cannot be read ({error}).") from error
    packed.unlink()


def _move_up(folder: Path) -> None:
    """What is in a folder into the one that it is in."""
    for path in folder.iterdir():
        path.replace(folder.parent / path.name)
    folder.rmdir()
