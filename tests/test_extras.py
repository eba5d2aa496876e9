import pytest

from longtake.errors import MissingExtraError
from longtake.extras import Extra, import_from_extra, known_extras


def test_every_extra_of_the_package_is_listed_but_those_made_of_others() -> None:
    names = [extra.name for extra in known_extras()]
    assert names == sorted(names)
    assert {"cuda", "plot"} <= set(names)
    assert not {"all", "dev"} & set(names)


def test_packages_are_found_by_the_modules_they_bring() -> None:
    assert Extra("x", ("nvidia-ml-py", "import-linter-that-is-not-there")).missing == (
        "import-linter-that-is-not-there",
    )
    assert Extra("x", ("huggingface-hub",)).missing == ()


def test_missing_module_says_what_to_install() -> None:
    assert import_from_extra("json", "x", "This") is not None
    with pytest.raises(MissingExtraError, match=r'This needs nowhere.* run: pip install "longtake\[x\]"'):
        import_from_extra("nowhere.at_all", "x", "This")
