"""What there is once: a session is not copied, for its copies would write into one memory."""

from typing import NoReturn, SupportsIndex

from longtake.errors import InputError


class Single:
    """Refuses `copy.copy`, `copy.deepcopy` and `pickle`, which all ask for the same."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise InputError(
            f"A {type(self).__name__} cannot be copied or pickled, for it holds a memory; fork it, or save it."
        )
