"""Files written in a process of their own, for a thread that writes would hold up the one that maps.

Each operation of a network lets go of the interpreter's lock and takes it back, and waits each time for who has it.

here                                            the other process
sinks, from the first frame on
WriterProcess      starts ───────────────────▶  imports what sinks need
WriterProcessSink  goes on from a checkpoint ▶  sinks, from the next frame on
                   a few frames ahead ───────▶  prepares them, several side by side; appends them one after the other
                   is told ◀─────────────────   that the oldest is written, or why it is not
                   a checkpoint among them ──▶  brings the frames before it to the disk, and publishes it
"""

import io
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import Queue
from typing import IO, Any

import psutil
import torch
from torch import Tensor

from longtake.errors import InputError, LongtakeError, SettingError
from longtake.exports.frame import MappedFrame
from longtake.exports.sink import AppendSink, OpenAppendSink, SinkState

_START = (
    "import sys; sys.path[:] = {path!r}; from longtake.pipeline.lifeline import hang_on_parent; hang_on_parent(); "
    "import longtake.pipeline.outputs; from longtake.pipeline.writer_process import serve; serve()"
)


FRAMES_BEFORE_HANDOVER = 60
"""Frames written before the other process is started: a short video is done before that would be ready.

A GPU maps them faster than they are written here, so with one the process is started beforehand."""


MOST_IN_FLIGHT = 32
"""Frames that were handed over and are not known to be written.

About as many as a GPU maps while the cloud makes its voxels wider, for which all appending waits."""
_MOST_THREADS = 6
_PIPE_BYTES = 1 << 20
"""The most that a pipe may hold on Linux; with less, a frame goes in more pieces, and each waits for the lock."""

_LINUX_STATUS, _LINUX_FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_LINUX_PEAK_ALONE = "5"
"""What makes the kernel forget the peak, and nothing else (man 5 proc)."""


class _Wish(Enum):
    """What can be asked for beside opening and writing."""

    CHECKPOINT = "checkpoint"
    CLOSE = "close"
    PEAK = "peak"
    FORGET_PEAK = "forget peak"


UseState = Callable[[SinkState], None]
"""What is done with the state of a checkpoint, such as to publish it."""


@dataclass(frozen=True, slots=True)
class _Saving:
    """A checkpoint that nobody waits for; the answer is how many seconds it took."""

    then: UseState


@dataclass(frozen=True, slots=True)
class _Opening:
    """A pickled `OpenAppendSink`, apart, so that one which cannot be unpickled leaves the stream as it is."""

    open_sink: bytes
    state: SinkState


class WriterProcess:
    """A process that writes results in their order; leave its `with` block when its sinks are closed.

    It lives no longer than the one that started it, and leaves signals to that one.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        """Nothing is started before it is wanted: with `at_once` that is when the `with` block begins."""
        self._at_once = at_once
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready, self._is_broken = threading.Event(), False
        self._owed: deque[Callable[[Any], None] | None] = deque()
        """Who is told each answer that is to come."""
        self._greeted = threading.Thread(target=self._wait_for_greeting, daemon=True)

    def __enter__(self) -> "WriterProcess":
        if self._at_once:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_ready(self) -> bool:
        return self._is_ready.is_set() and not self._is_broken

    def start(self) -> None:
        """Returns at once; the process is ready when it has imported what it needs, a second or two later.

        Where the system has none to give, as with too many open files, it never is, and files are written here.
        """
        if self._process is not None:
            return
        command = [sys.executable, "-c", _START.format(path=sys.path)]
        with suppress(OSError):
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
            _widen(self._requests)
            self._greeted.start()

    def wait_until_ready(self) -> None:
        self.start()
        if self._process is not None:
            self._greeted.join()

    @property
    def resident_bytes(self) -> int:
        """That it holds now; 0 where there is no process."""
        return 0 if self._process is None else resident_bytes(self._process.pid)

    @property
    def peak_bytes(self) -> int:
        """The most that it held so far, or since that was forgotten."""
        return int(self.ask(_Wish.PEAK)) if self.is_ready else self.resident_bytes

    def forget_peak(self) -> None:
        """Count the most that it holds from here on, for another video."""
        if self.is_ready:
            self.ask(_Wish.FORGET_PEAK)

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._greeted.join()
        self._is_broken = True
        with suppress(OSError):  # what was not sent has nobody to go to
            self._requests.close()
        self._answers.close()

    def send(self, request: object, on_answer: Callable[[Any], None] | None = None) -> None:
        """Hand over a request; waits only while too many are under way. An error of an earlier one is raised here.

        One of the next calls tells the answer.
        """
        with self._told_of_death():
            self._send(request, on_answer)
            while len(self._owed) > MOST_IN_FLIGHT:
                self._next_answer()

    def ask(self, request: object) -> Any:
        """Hand over a request and wait until all are done; the first error is raised here."""
        with self._told_of_death():
            self._send(request)
            while self._owed:
                answer = self._next_answer()
        return answer

    def _send(self, request: object, on_answer: Callable[[Any], None] | None = None) -> None:
        assert self.is_ready
        with self._in_one_piece():
            _send(request, self._requests)
        self._owed.append(on_answer)

    @contextmanager
    def _told_of_death(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            assert self._process is not None
            code = self._process.wait()
            raise InputError(
                f"The process that writes the files has died (exit code {code}); see what ended it, and resume."
            ) from error

    @contextmanager
    def _in_one_piece(self) -> Iterator[None]:
        """Whatever ends the block half way leaves a stream that nobody can go on with."""
        self._is_broken = True
        yield
        self._is_broken = False

    def _next_answer(self) -> Any:
        self._answers.peek(1)  # waits here, where an interrupt breaks nothing
        with self._in_one_piece():
            answer = pickle.load(self._answers)  # noqa: S301 - written by our own process
        on_answer = self._owed.popleft()
        if isinstance(answer, LongtakeError):
            raise answer
        if on_answer is not None and answer is not None:
            on_answer(answer)
        return answer

    def _wait_for_greeting(self) -> None:
        if self._answers.read(1):
            self._is_ready.set()

    @property
    def _requests(self) -> IO[bytes]:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _answers(self) -> io.BufferedReader:
        assert self._process is not None
        assert isinstance(self._process.stdout, io.BufferedReader)
        return self._process.stdout


class WriterProcessSink(AppendSink):
    """A sink that is opened here, and goes on from a checkpoint in the other process once that is ready.

    From then on frames are written a little after `write` returns, and all of them at a checkpoint, which is waited for
    unless it is one that is saved. What goes wrong is raised here, by one of the next calls.
    """

    def __init__(
        self, writer_process: WriterProcess, open_sink: OpenAppendSink, state: SinkState | None = None
    ) -> None:
        """The function that opens it must be one that can be pickled."""
        self._writer_process = writer_process
        try:
            self._opening = pickle.dumps(open_sink)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise _cannot_travel(error) from error
        self._here: AppendSink | None = open_sink(state)
        self._num_here, self._is_closed = 0, False

    @property
    def is_handed_over(self) -> bool:
        """Whether frames are written by the other process by now."""
        return self._here is None

    def write(self, frame: MappedFrame) -> None:
        if self._here is not None and self._writer_process.is_ready:
            self._hand_over(self._here)
        if self._here is None:
            self._writer_process.send(frame)
        else:
            self._write_here(self._here, frame)

    def checkpoint(self) -> SinkState:
        if self._here is not None:
            return self._here.checkpoint()
        state: SinkState = self._writer_process.ask(_Wish.CHECKPOINT)
        return state

    def save(self, then: UseState, on_saved: Callable[[float], None]) -> None:
        """Do this with the state of a checkpoint of the frames so far, where they are written, while others come.

        When it is done, at once or during one of the next calls, `on_saved` is told how many seconds it took; there it
        is done after the frames before it, and before those that follow. It must be one that can be pickled.
        """
        if self._here is not None:
            on_saved(save(self._here, then))
        else:
            self._writer_process.send(_Saving(then), on_saved)

    def close(self) -> None:
        """Where the process is lost, that was told before, and there is nothing to close."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._here is not None:
            self._here.close()
        elif self._writer_process.is_ready:
            self._writer_process.ask(_Wish.CLOSE)

    def _write_here(self, here: AppendSink, frame: MappedFrame) -> None:
        here.write(frame)
        self._num_here += 1
        if self._num_here == FRAMES_BEFORE_HANDOVER:
            self._writer_process.start()

    def _hand_over(self, here: AppendSink) -> None:
        opening = _Opening(self._opening, here.checkpoint())
        here.close()
        self._here = None
        self._writer_process.ask(opening)


def save(sink: AppendSink, then: UseState) -> float:
    """Do this with the state of a checkpoint, here and now; returns how many seconds it took."""
    started_s = time.monotonic()
    then(sink.checkpoint())
    return time.monotonic() - started_s


def serve() -> None:
    """The other process: do what is asked until nobody asks any more.

    Then nothing is closed, for another run may have gone on with the files: they are as a kill leaves them.
    """
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints shall not be taken for an answer
    desk = _Desk()
    with _ending_the_process(), suppress(BrokenPipeError):
        answers.write(b"!")
        answers.flush()
        threading.Thread(target=desk.receive, args=(sys.stdin.buffer,), daemon=True).start()
        for answer in desk.answers():
            _send(answer, answers)


@contextmanager
def _ending_the_process() -> Iterator[None]:
    """The block's end is that of the process: the interpreter would wait for threads that read or prepare."""
    code = 1
    try:
        yield
        code = 0
    except BaseException:  # noqa: BLE001 - told here, for nothing comes after
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Desk:
    """Where requests are met in their order; frames are prepared ahead, by several threads."""

    def __init__(self) -> None:
        self._sink: AppendSink | None = None
        self._has_failed = False
        self._threads = ThreadPoolExecutor(max(1, min(_MOST_THREADS, (os.cpu_count() or 1) // 2)))
        self._requests: Queue[tuple[object, Future[Any] | None] | None] = Queue()

    def receive(self, requests: IO[bytes]) -> None:
        """Take requests until they end; where one cannot be taken, nobody would be answered any more."""
        try:
            while True:
                request = pickle.load(requests)  # noqa: S301 - written by our own process
                if isinstance(request, MappedFrame) and self._sink is not None:
                    self._requests.put((None, self._threads.submit(self._prepared, request)))
                else:
                    self._requests.put((request, None))
                del request  # what is prepared is smaller than what it is of
        except (EOFError, pickle.UnpicklingError):
            self._requests.put(None)
        except BaseException:
            with _ending_the_process():
                raise

    def answers(self) -> Iterator[object]:
        while (item := self._requests.get()) is not None:
            try:
                yield self._met(*item)
            except LongtakeError as error:
                yield error

    def _prepared(self, frame: MappedFrame) -> Any:
        assert self._sink is not None
        return self._sink.prepare(frame)

    def _met(self, request: object, prepared: Future[Any] | None) -> object:
        """A frame is what was prepared of it."""
        if prepared is not None:
            assert self._sink is not None
            self._append(self._sink, prepared)
            return None
        if isinstance(request, _Opening):
            assert self._sink is None
            self._sink, self._has_failed = _load(request.open_sink)(request.state), False
            return None
        if request is _Wish.PEAK:
            return peak_bytes()
        if request is _Wish.FORGET_PEAK:
            forget_peak()
            return None
        if request is _Wish.CLOSE:
            self._close()
            return None
        assert self._sink is not None
        if request is _Wish.CHECKPOINT:
            return None if self._has_failed else self._sink.checkpoint()
        assert isinstance(request, _Saving)
        return None if self._has_failed else save(self._sink, request.then)

    def _append(self, sink: AppendSink, prepared: Future[Any]) -> None:
        """Nothing follows a frame that could not be written; it alone is told."""
        if self._has_failed:
            return
        self._has_failed = True
        sink.append(prepared.result())
        self._has_failed = False

    def _close(self) -> None:
        """There may be none, where opening failed."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()


def resident_bytes(process: int | None = None) -> int:
    """That this process holds now, or another; 0 where it has ended or the system does not tell."""
    try:
        return int(psutil.Process(process).memory_info().rss)
    except (psutil.Error, OSError):  # the latter where no file can be opened any more
        return 0


def forget_peak() -> None:
    """Count the most that this process holds from here on; only Linux can, elsewhere it counts from its beginning."""
    with suppress(OSError):
        _LINUX_FORGET.write_text(_LINUX_PEAK_ALONE)


def peak_bytes() -> int:
    """The most that this process held since that was forgotten, or it began; 0 where the system does not tell."""
    with suppress(OSError, StopIteration):
        line = next(line for line in _LINUX_STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Pickler(pickle.Pickler):
    """Large arrays go to the file as they are, uncopied; matrices as arrays, for torch would make a file of each."""

    dispatch_table = {Tensor: lambda tensor: (torch.from_numpy, (tensor.numpy(),))}  # noqa: RUF012


def _widen(pipe: IO[bytes]) -> None:
    """Where the system lets it be wider."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _send(value: object, file: IO[bytes]) -> None:
    _Pickler(file, protocol=5).dump(value)
    file.flush()


def _load(opening: bytes) -> OpenAppendSink:
    try:
        open_sink: OpenAppendSink = pickle.loads(opening)  # noqa: S301 - written by our own process
    except (pickle.UnpicklingError, ImportError, AttributeError) as error:
        raise _cannot_travel(error) from error
    return open_sink


def _cannot_travel(error: Exception) -> SettingError:
    return SettingError(
        f"Expected settings of the files that another process can take, but they cannot be pickled ({error}); use "
        "classes of a module, or write the files in this process."
    )
