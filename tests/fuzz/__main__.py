"""Damaged inputs, one after another: `python -m tests.fuzz --cases 10000`, `python -m tests.fuzz --replay video:17`.

A case is told by its target and number. It may end well or in one sentence of ours; any other exception, a crash, more
than 2 GB or 20 seconds, and a file changed beside `out` are failures. Cases run in forked processes with these limits.
"""

import argparse
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TextIO

import torch

from longtake.errors import LongtakeError
from tests.fuzz.targets import TARGETS, Target, assert_one_sentence

MOST_BYTES = 2 * 10**9
MOST_SECONDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of targets, with commas")
    parser.add_argument("--replay", help="one case, such as video:17, with its whole traceback")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if options.replay:
        name, number = options.replay.split(":")
        plan = {target: [int(number)] for target in TARGETS if target.name == name}
    else:
        wanted = [target for target in TARGETS if not options.only or target.name in options.only.split(",")]
        per_share = options.cases / sum(target.share for target in wanted)
        plan = {target: range(math.ceil(per_share * target.share)) for target in wanted}
    num_failures = 0
    for target, numbers in plan.items():
        started, failures = time.monotonic(), list(failures_of(target, numbers, options.seed))
        num_failures += len(failures)
        seconds = time.monotonic() - started
        print(f"{target.name}: {len(numbers)} cases, {len(failures)} failures, {seconds:.0f} s", flush=True)
        for number, problem in failures:
            print(f"  --seed {options.seed} --replay {target.name}:{number}\n{problem}", flush=True)
    print(f"{sum(map(len, plan.values()))} cases, {num_failures} failures")
    sys.exit(1 if num_failures else 0)


def failures_of(target: Target, numbers: range | list[int], seed: int) -> Iterator[tuple[int, str]]:
    """The cases that went wrong, and how; a process that dies takes one case with it."""
    with tempfile.TemporaryDirectory(prefix="longtake-fuzz-") as root:
        whole = Path(root) / "whole"
        whole.mkdir()
        with quiet():
            target.make(whole)
        remaining = list(numbers)
        while remaining:
            current, problems = None, []
            for line, status in _watched(target, remaining, seed, Path(root)):
                if status is not None:
                    if current is None:
                        raise RuntimeError(f"{target.name} cannot begin: status {status}")
                    if status:
                        problems.append((current, _how_it_died(status)))
                elif "problem" in line:
                    problems.append((line["number"], line["problem"]))
                else:
                    current = line["number"]
            yield from problems
            remaining = remaining[remaining.index(current) + 1 :] if current is not None else []


def _how_it_died(status: int) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return f"    took more than {MOST_SECONDS} s"
    return f"    the process died with status {status}"


def _watched(target: Target, numbers: list[int], seed: int, root: Path) -> Iterator[tuple[dict, int | None]]:
    """What a forked process says of its cases, line by line, and last how it ended."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        status = 1
        try:
            with os.fdopen(writing, "w", buffering=1) as told:
                _run_cases(target, numbers, seed, root, told)
            status = 0
        except OSError:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as told:
        for line in told:
            yield json.loads(line), None
    yield {}, os.waitpid(process, 0)[1]


def _run_cases(target: Target, numbers: list[int], seed: int, root: Path, told: TextIO) -> None:
    outside, work = root / "outside", root / "work"
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    os.chdir(outside)
    now_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now_bytes + MOST_BYTES, resource.RLIM_INFINITY))
    for number in numbers:
        told.write(json.dumps({"number": number}) + "\n")
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(root / "whole", work)
        target.damage(work, Random(f"{seed}:{target.name}:{number}"))
        before = _files(root)
        signal.alarm(MOST_SECONDS)
        problem = _problem(target, work)
        signal.alarm(0)
        if not problem and (changed := {str(path) for path, _ in before ^ _files(root)}):
            problem = f"    changed files beside out: {', '.join(sorted(changed)[:3])}"
        if problem:
            told.write(json.dumps({"number": number, "problem": problem}) + "\n")


def _problem(target: Target, work: Path) -> str:
    try:
        with quiet():
            target.read(work)
    except LongtakeError as error:
        try:
            assert_one_sentence(error)
        except AssertionError as problem:
            return f"    {problem}"
    except BaseException:  # noqa: BLE001 (that there is none is what is tested)
        lines = traceback.format_exc(limit=-4).splitlines()
        return "\n".join(f"    {line[:300]}" for line in lines)
    return ""


def _files(root: Path) -> set[tuple[Path, bytes | None]]:
    """All files and folders but those that may be written, with what files hold."""
    found = (path for path in root.rglob("*") if "out" not in path.relative_to(root).parts)
    return {(path, path.read_bytes() if path.is_file() else None) for path in found}


class quiet:  # noqa: N801
    """Nothing is printed, also not by libraries."""

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._kept = [os.dup(1), os.dup(2)]
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.close(nothing)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(self._kept, start=1):
            os.dup2(kept, number)
            os.close(kept)


if __name__ == "__main__":
    main()
