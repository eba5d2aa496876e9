"""What a client can get wrong: a code, one sentence, and the status of the reply that says so."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from longtake.errors import (
    BudgetError,
    BusyError,
    CancelledWorkError,
    ChangedFileError,
    InputError,
    LongtakeError,
    MemoryFullError,
    RecallError,
    SavedSessionError,
    SettingError,
    StorageError,
    UnknownWordsError,
)

RETRY_AFTER_S = 5
"""When to try again after a refusal for want of room or time."""


class RequestError(LongtakeError):
    """A request that is refused, with a code of its own; the session is as it was."""

    def __init__(self, code: str, sentence: str, *, status: int = 400) -> None:
        super().__init__(sentence)
        self.code, self.status = code, status


class NotNowError(RequestError):
    """A frame that a session does not take as it is now, paused or ended; its own source needs not be told."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is told of an error."""

    code: str
    message: str
    status: int

    @property
    def record(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


_CODES: tuple[tuple[type[LongtakeError], str, int], ...] = (
    (BusyError, "busy", 429),
    (CancelledWorkError, "cancelled", 409),
    (SavedSessionError, "saved_session", 409),
    (InputError, "bad_input", 400),
    (BudgetError, "budget_too_small", 400),
    (SettingError, "bad_setting", 400),
    (MemoryFullError, "memory_full", 409),
    (RecallError, "memory", 409),
)


def without_place(sentence: str, sessions: Path) -> str:
    """With files of a session named as they are in its folder: where the server has that is nothing to a client."""
    whole = str(sessions.resolve())
    places = "|".join(re.escape(f"{place}{os.sep}") for place in (whole, sessions))
    folder = rf"(?:{places})?\b[0-9a-f]{{16}}(?:\.unfinished)?"
    sentence = re.sub(folder + re.escape(os.sep), "", sentence)
    sentence = re.sub(folder + r"\b", "the session's folder", sentence)
    return sentence.replace(whole, "the server's folder")


def for_clients(sentence: str) -> str:
    """What is wrong with a save, with what a client can do in place of what its files' owner could."""
    fault = sentence.rpartition("; ")[0] or sentence.rstrip(".")
    return f"{fault}; open another session and send its frames again, or tell the server's operator."


def problem_of(error: BaseException) -> Problem:
    """The code and sentence of an error; one that is no client's fault says nothing of its inside."""
    if isinstance(error, RequestError):
        return Problem(error.code, str(error), error.status)
    if isinstance(error, UnknownWordsError):
        return Problem("unknown_words", error.brief, 422)
    if isinstance(error, StorageError):
        return Problem("storage", f"{error.fault}: the server's operator has to make room on its disk.", 507)
    if isinstance(error, ChangedFileError):
        return Problem("saved_session", f"{error.fault}: it happened on the server's disk.", 409)
    for kind, code, status in _CODES:
        if isinstance(error, kind):
            return Problem(code, str(error), status)
    return Problem("internal", "The server failed at this; its log says more, and the session is as it was.", 500)
