"""A client's side of the wire without its input and output: what to send, what to hold, what to send again.

    steps of a session ── Call, Open, Send, Receive … ──▶ who carries them out: a thread, or a task
                       ◀── what came, or that it broke ──

Steps are generators: each effect that they give is carried out, and what came of it is sent back into them. What they
tell a caller is an effect too, the last of which is the result.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from longtake.errors import InputError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request; its reply's body is what comes."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """Write the reply to a request into a file, which is complete or absent."""

    path: str
    target: Path


@dataclass(frozen=True, slots=True)
class Open:
    """Open a socket in place of the one before."""

    path: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message over the socket."""

    content: str | bytes


@dataclass(frozen=True, slots=True)
class Receive:
    """The socket's next message is what comes."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket, if one is open."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Told:
    """Something for the caller."""

    piece: Any


Effect = Call | Fetch | Open | Send | Receive | Close | Pause | Told
Steps = Generator[Effect, Any, Value]


class LostConnectionError(Exception):
    """The socket broke, or there is no server now; steps go on from here."""


class UnknownSessionError(InputError):
    """The server has no session of an id."""


class Script:
    """Steps under way; iterating gives the effects, and what came of each is put here before the next."""

    def __init__(self, steps: Steps[None]) -> None:
        self._steps = steps
        self.came: Any = None
        self._failed: LostConnectionError | UnknownSessionError | None = None

    def __iter__(self) -> Iterator[Effect]:
        return self

    def __next__(self) -> Effect:
        came, failed = self.came, self._failed
        self.came = self._failed = None
        return self._steps.send(came) if failed is None else self._steps.throw(failed)

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """While an effect is carried out: a lost connection is the steps' to mend, and an unknown id theirs to tell."""
        try:
            yield
        except (LostConnectionError, UnknownSessionError) as error:
            self._failed = error

    def close(self) -> None:
        """Give up what is left of the steps."""
        self._steps.close()
