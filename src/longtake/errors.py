"""The error tree: what a user can cause, each with one sentence on what was expected, what came and what to do.

LongtakeError
├── InputError            a frame, size or file is not what the session takes
│   ├── StorageError      the disk does not take what is to be written
│   ├── OccupiedError     another run is writing to the folder
│   ├── ChangedFileError  a file to go on after is gone, or is not as it was written
│   ├── SavedSessionError a saved session cannot be resumed here
│   ├── UnknownWordsError a question is outside of what a model of few words knows
│   └── CheckpointError   a file of weights is missing, damaged, unsafe to open or of another model
├── SettingError          an option has no meaning, or two options contradict each other
├── MissingExtraError     a feature needs packages that are not installed
├── BusyError             there is no room or time for another session now
├── CancelledWorkError    what was asked for was given up before its end
└── RecallError           the memory cannot do what was asked; it is unchanged
    ├── BudgetError       the declared budget cannot hold the smallest working set
    ├── MemoryFullError   no free slot is left for this clip
    ├── TransactionError  a clip was staged, written or committed out of order
    └── ForkError         a fork was used after its end, or committed after its parent moved on
"""


class LongtakeError(Exception):
    """Base of every error longtake raises on purpose."""


class InputError(LongtakeError):
    """A frame, size or file is not what was expected."""


class _FileError(InputError):
    def __init__(self, sentence: str, *, fault: str = "") -> None:
        """`fault` is the sentence without its advice, for who is not at the machine that has the file."""
        super().__init__(sentence)
        self.fault = fault or sentence.rstrip(".")


class StorageError(_FileError):
    """The disk does not take what is to be written."""


class OccupiedError(InputError):
    """Another run is writing to the folder; later it is free."""


class ChangedFileError(_FileError):
    """A file to go on after is gone, or is not as it was written."""


class SavedSessionError(InputError):
    """A saved session cannot be resumed with this model or this version."""


class UnknownWordsError(InputError):
    """A question, or a choice, is outside of what a model of few words knows."""

    def __init__(self, sentence: str, *, why: str = "", known: str = "", brief: str = "") -> None:
        """`why`, and what is `known` instead, are the two parts of the sentence by themselves.

        `brief` is for who sees what can be asked beside it.
        """
        super().__init__(sentence)
        self.why, self.known, self.brief = why, known, brief or sentence


class CheckpointError(InputError):
    """A file of weights is missing, damaged, unsafe to open or of another model."""


class SettingError(LongtakeError):
    """An option has no meaning, or two options contradict each other."""


class MissingExtraError(LongtakeError):
    """A feature needs packages that are not installed."""


class BusyError(LongtakeError):
    """There is no room, or no time, for another session now; later there may be."""


class CancelledWorkError(LongtakeError):
    """What was asked for was given up before its end."""


class RecallError(LongtakeError):
    """The memory cannot do what was asked; it is unchanged."""


class BudgetError(RecallError):
    """The declared budget cannot hold the smallest working set."""

    def __init__(self, sentence: str, *, least_bytes: int | None = None) -> None:
        """`least_bytes` is the smallest budget that would, where that is known."""
        super().__init__(sentence)
        self.least_bytes = least_bytes


class MemoryFullError(RecallError):
    """No free slot is left for this clip."""


class TransactionError(RecallError):
    """A clip was staged, written or committed out of order."""


class ForkError(RecallError):
    """A fork was used after its end, or committed after its parent moved on."""
