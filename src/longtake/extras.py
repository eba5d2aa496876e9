"""Code that longtake does not bring itself: optional packages, and what a user names as `module:attribute`."""

import re
from dataclasses import dataclass
from importlib import import_module, metadata, util
from types import ModuleType

from longtake.errors import MissingExtraError, SettingError

_MODULES = {"nvidia-ml-py": "pynvml", "rerun-sdk": "rerun"}


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra of this package and the packages it asks for."""

    name: str
    packages: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(package for package in self.packages if util.find_spec(_module_of(package)) is None)

    @property
    def install_command(self) -> str:
        return f'pip install "longtake[{self.name}]"'


def _module_of(package: str) -> str:
    return _MODULES.get(package, package.replace("-", "_"))


def known_extras() -> list[Extra]:
    """The extras users may ask for; `all` and `dev` are made of the others."""
    requires = metadata.requires("longtake") or []
    found: dict[str, list[str]] = {}
    for line in requires:
        match = re.match(r"([\w.-]+)(?:\[[^\]]*\])?[^;]*;.*extra == ['\"]([\w-]+)['\"]", line)
        if match and match[2] not in ("all", "dev"):
            found.setdefault(match[2], []).append(match[1])
    return [Extra(name, tuple(packages)) for name, packages in sorted(found.items())]


def import_from_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or say what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f'{purpose} needs {module.split(".")[0]}, which is not installed; run: pip install "longtake[{extra}]"'
        ) from error


def import_own(name: str, what: str) -> object:
    """What a user named as `module:attribute`."""
    module, _, attribute = name.partition(":")
    try:
        return vars(import_module(module))[attribute]
    except Exception as error:  # whatever a module does when it is imported
        raise SettingError(
            f"Expected {what} at '{name}', but it cannot be imported ({type(error).__name__}: {error}); name it as "
            "module:attribute, of a module that Python finds."
        ) from error
