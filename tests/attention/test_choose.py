"""Backends by name."""

import pytest

from longtake.attention.backend import Backend
from longtake.attention.choose import BACKENDS, backend_named
from longtake.errors import MissingExtraError, SettingError


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_is_found_by_the_name_it_gives_itself(name: str) -> None:
    try:
        backend = backend_named(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert isinstance(backend, Backend)
    assert backend.name == name


def test_there_are_a_fast_and_an_obvious_backend() -> None:
    assert {"sdpa", "reference"} <= set(BACKENDS)


def test_unknown_backend_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingError, match="no attention backend 'magic'; choose one of sdpa, reference"):
        backend_named("magic")
