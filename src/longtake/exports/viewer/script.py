"""The view's modules as text: each on its own, or all that one needs as a single script."""

import re
from importlib.resources import files

_IMPORT = re.compile(r'^import [^;]*? from "\./([\w/]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def module_names() -> tuple[str, ...]:
    """Of all modules, in the order of the alphabet."""
    return tuple(sorted(found.name for found in files(__package__).iterdir() if found.name.endswith(".js")))


def module_text(name: str) -> str:
    """A module as it is."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def as_one_script(entry: str) -> str:
    """A module's text after all that it imports, each once; names are unique over all modules of the view."""
    parts: dict[str, str] = {}
    _collect(entry, parts)
    return "\n".join(parts.values())


def _collect(text: str, parts: dict[str, str], name: str = "") -> None:
    for imported in _IMPORT.findall(text):
        if imported not in parts:
            _collect(module_text(imported), parts, imported)
    parts[name] = _EXPORT.sub("", _IMPORT.sub("", text))
