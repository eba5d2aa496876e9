"""`longtake map` broken off at random moments and gone on with: in the end all files are those of a run that never was.

By hand: `pytest -s -m by_hand tests/cli/test_broken_off.py`, which prints how often a run ended so, and how far it was.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from done import Done

from longtake.exports.record import EXPORT_FOLDER, RECORD_NAME
from longtake.exports.report.folder import PROGRESS_NAME, RUN_NAME, SUMMARY_NAME
from longtake.exports.report.page import REPORT_NAME
from longtake.pipeline.checkpoint import FOLDER

NUM_KILLS = 30
NUM_INTERRUPTS = 20
NUM_DURING_EXPORT = 8
ENDED = "when it had ended"
"""Too late to be counted."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORMATS = "tum,ply,kitti,depth,confidence,images,session,colmap,nerfstudio,glb"
OPTIONS = ("--size", "56", "--windows", "24/6", "--checkpoint-every", "10", "--format", FORMATS)
pytestmark = [
    pytest.mark.by_hand,
    pytest.mark.timeout(0),
    pytest.mark.skipif(sys.platform != "linux", reason="signals and mounts are Linux's"),
]


class Mapping:
    """`longtake map` in a session of its own, so that its processes can be signalled together."""

    def __init__(self, source: Path, folder: Path, *more: str, num_files: int | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self._said = folder / "said"
        arguments = ("longtake", "map", str(source), "--model", "tiny", *OPTIONS, "--out", "out", *more)
        self._process = forked.CONTEXT.Process(target=_main, args=(arguments, folder, num_files))
        self._process.start()

    @property
    def is_running(self) -> bool:
        return self._process.exitcode is None

    def wait_for(self, path: Path) -> float:
        """When a file came, or the process ended."""
        while not path.exists() and self.is_running:
            time.sleep(0.01)
        return time.monotonic()

    def send(self, send: Callable[[int, int], None], number: signal.Signals) -> None:
        if self.is_running:
            assert self._process.pid is not None
            send(self._process.pid, number)

    def done(self) -> Done:
        self._process.join()
        said = self._said.read_text()
        self._said.unlink()
        return Done(self._process.exitcode, said, "")


def _main(arguments: Sequence[str], folder: Path, num_files: int | None) -> None:
    import longtake.pipeline.writer_process as writer_process
    from longtake.cli.main import main

    writer_process.FRAMES_BEFORE_HANDOVER = 5  # it is there for most of the run, not for its end alone
    os.setsid()
    os.chdir(folder)
    said = os.open("said", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = list(arguments)
    if num_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, num_files))
    main()


@dataclass(frozen=True)
class Whole:
    """A run that was never broken off."""

    source: Path
    files: dict[str, bytes]
    seconds: float
    """Between its first file and its last frame."""
    export_s: float

    def resumed(self, folder: Path) -> str:
        """How it ended up: the same files, or what went wrong."""
        done = Mapping(self.source, folder, "--resume").done()
        if done.returncode and "nothing to resume" not in done.stdout:
            return f"not resumed: {done.stdout}"
        found = contents(folder / "out")
        return "identical" if found == self.files else f"other files: {different(found, self.files)}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, longtake: Callable[..., Done]) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    walk = ("--frames", "150", "--size", "56x42", "--images", "png", "--depth", "none", "--questions", "0")
    assert longtake("world", "--out", str(folder / "walk"), *walk).returncode == 0
    mapping = Mapping(folder / "walk", folder)
    names = (RUN_NAME, SUMMARY_NAME, f"{EXPORT_FOLDER}/{RECORD_NAME}")
    begun, mapped, ended = (mapping.wait_for(folder / "out" / name) for name in names)
    done = mapping.done()
    assert done.returncode == 0, done.stdout
    print(f"\na run takes {mapped - begun:.1f} s and {ended - mapped:.1f} s for its export", flush=True)
    files = contents(folder / "out")
    return Whole(source=folder / "walk", files=files, seconds=mapped - begun, export_s=ended - mapped)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those with times of the clock in them."""
    timed = (SUMMARY_NAME, PROGRESS_NAME, REPORT_NAME)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def different(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def stage(out: Path) -> str:
    """How far a run is that was broken off."""
    if (out / EXPORT_FOLDER).exists():
        return ENDED if (out / EXPORT_FOLDER / RECORD_NAME).exists() else "in the export"
    if (out / SUMMARY_NAME).exists():
        return "at its end"
    return "after a checkpoint" if (out / FOLDER / "latest.json").exists() else "before a checkpoint"


def broken_off(
    whole: Whole, folder: Path, moment: float, send: Callable[[int, int], None], number: signal.Signals, *, after: str
) -> tuple[str, Done]:
    """Where a run was when it got a signal, so long after one of its files came, and how it ended."""
    shutil.rmtree(folder, ignore_errors=True)
    mapping = Mapping(whole.source, folder)
    mapping.wait_for(folder / "out" / after)
    time.sleep(moment)
    mapping.send(send, number)
    done = mapping.done()
    return stage(folder / "out"), done


def test_killed_at_random_moments(whole: Whole, tmp_path: Path) -> None:
    chance, counts = random.Random(1), Counter[str]()
    while counts.total() < NUM_KILLS:
        moment = chance.uniform(0, whole.seconds + whole.export_s)
        where, _ = broken_off(whole, tmp_path / "cut", moment, os.kill, signal.SIGKILL, after=RUN_NAME)
        if where != ENDED:
            count(counts, f"killed {where}: {whole.resumed(tmp_path / 'cut')}")
    assert all(how.endswith("identical") for how in counts)


def count(counts: Counter[str], how: str) -> None:
    counts[how] += 1
    print(counts[how], how, flush=True)


def test_asked_to_end_at_random_moments(whole: Whole, tmp_path: Path) -> None:
    """One process, or both, as a terminal and a system that shuts down do; the exit code is that of an interrupt."""
    chance, counts = random.Random(2), Counter[str]()
    while (place := counts.total()) < NUM_INTERRUPTS:
        is_export = place < NUM_DURING_EXPORT
        moment = chance.uniform(0, whole.export_s if is_export else whole.seconds)
        number, send = INTERRUPTS[place % 3], os.killpg if place % 2 else os.kill
        after = SUMMARY_NAME if is_export else RUN_NAME
        where, done = broken_off(whole, tmp_path / "cut", moment, send, number, after=after)
        if where == ENDED:
            continue
        is_clean = "Traceback" not in done.stdout and done.returncode == 130
        how = whole.resumed(tmp_path / "cut") if is_clean else f"exit code {done.returncode}, {done.stdout}"
        count(counts, f"{number.name} by {send.__name__} {where}: {how}")
    assert all(how.endswith("identical") for how in counts)


@pytest.mark.parametrize("kilobytes", [150, 700, 2000, 4000])
def test_on_a_full_disk(whole: Whole, tmp_path: Path, kilobytes: int) -> None:
    """A small disk of its own, that is made larger for the second try."""
    arguments = ["map", str(whole.source), "--model", "tiny", *OPTIONS, "--out", "out"]
    command = " ".join([sys.executable, "-c", "'from longtake.cli.main import main; main()'", *arguments])
    (tmp_path / "disk").mkdir()
    script = (
        f"cd {tmp_path} && mount -t tmpfs -o size={kilobytes}k tmpfs disk && cd disk && {command} > ../said 2>&1; "
        f"echo $? > ../code; mount -o remount,size=1g {tmp_path}/disk; {command} --resume >> ../said 2>&1; "
        f"echo $? >> ../code; cp -r out .."
    )
    subprocess.run(["unshare", "-rm", "sh", "-c", script], check=True)
    codes, said = (tmp_path / "code").read_text().split(), (tmp_path / "said").read_text()
    print(f"a disk of {kilobytes} kB: exit codes {codes}", flush=True)
    assert codes == ["1", "0"], said
    assert "cannot be written" in said
    assert "Traceback" not in said
    assert different(contents(tmp_path / "out"), whole.files) == []


@pytest.mark.parametrize("num_files", [8, 12, 16, 20])
def test_with_few_open_files(whole: Whole, tmp_path: Path, num_files: int) -> None:
    done = Mapping(whole.source, tmp_path, num_files=num_files).done()
    print(f"{num_files} open files: exit code {done.returncode}", flush=True)
    if done.returncode:
        assert "Traceback" not in done.stdout
        assert whole.resumed(tmp_path) == "identical"
    assert different(contents(tmp_path / "out"), whole.files) == []
