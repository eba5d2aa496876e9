"""Commands that put a real server on trial; each exits with 1 where a promise did not hold."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.table import Table

from benchmarks.serving.churn import ChurnFigures, churn
from benchmarks.serving.openapi import ALL_PHASES, OpenApiFigures, call_everything
from benchmarks.serving.recovery import Recovery, Upset, recover
from benchmarks.serving.usage import Usage
from longtake.cli.options import AsJson
from longtake.cli.progress import counting
from longtake.cli.tables import show, table

if TYPE_CHECKING:  # they need websockets, which the other benchmarks do without
    from benchmarks.serving.attack import AttackFigures
    from benchmarks.serving.live_pace import LiveFigures
    from benchmarks.serving.overhead import OverheadFigures
    from benchmarks.serving.page_soak import PageSoakFigures
    from benchmarks.serving.page_start import PageStart
    from benchmarks.serving.soak import SoakFigures

Seed = Annotated[int, typer.Option(help="What is drawn at random repeats with it.")]


def serve_malformed(
    *,
    messages: Annotated[int, typer.Option(min=1, help="Messages to send.")] = 5000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Send a session messages that mean nothing or no good, while another one is watched for every bit."""
    from benchmarks.serving.attack import attack

    torch.set_num_threads(1)
    with _folder() as folder, counting("attacking", messages) as advance:
        figures = attack(folder, messages, seed=seed, progress=advance)
    _end(asdict(figures), _attacked(figures), as_json=as_json, is_fine=figures.is_fine)


def serve_recovery(
    *,
    upset: Annotated[list[Upset] | None, typer.Option(help="What happens; repeatable, by default all.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of each, at random moments.")] = 10,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Kill, end or leave a server in mid-video with four sessions, and compare every bit with local sessions."""
    torch.set_num_threads(1)
    upsets = upset or list(Upset)
    with _folder() as folder, counting("recovering", rounds * len(upsets)) as advance:
        found = [one for what in upsets for one in recover(folder, what, rounds, seed=seed, progress=advance)]
    is_fine = all(one.is_fine for one in found)
    _end([asdict(one) for one in found], _recovered(upsets, found), as_json=as_json, is_fine=is_fine)


def serve_churn(
    *,
    sessions: Annotated[int, typer.Option(min=5, help="Sessions to open, use and close.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Open, use and close sessions one after the other, and compare what the server's process holds."""
    with _folder() as folder, counting("sessions", sessions) as advance:
        figures = churn(folder, sessions, progress=advance)
    record = asdict(figures) | {"is_flat": figures.is_flat}
    _end(record, _churned(figures), as_json=as_json, is_fine=figures.is_flat)


def serve_live(
    *,
    sessions: Annotated[int, typer.Option(min=1, help="Live sessions that map.")] = 8,
    fps: Annotated[float, typer.Option(min=0.1, help="Frames a second that each is sent.")] = 2.0,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Let live cameras share a server: how alike they are served, how late, what is dropped."""
    from benchmarks.serving.live_pace import live_pace

    with _folder() as folder:
        figures = live_pace(folder, sessions, fps=fps, seconds=seconds)
    _end(asdict(figures), _lived(figures), as_json=as_json, is_fine=figures.is_fine)


def serve_overhead(
    *,
    size: Annotated[str, typer.Option(help="Width x height of the frames, in pixels.")] = "504x378",
    frames: Annotated[int, typer.Option(min=10, help="Frames to time.")] = 500,
    pause_ms: Annotated[float, typer.Option(min=0.0, help="Between an acknowledgement and the next frame.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Time a frame in the server beside its decoding and the network's own step."""
    from benchmarks.serving.overhead import measure_overhead

    with _folder() as folder:
        found = [
            measure_overhead(folder / results, size=size, num_frames=frames, results=results, pause_s=pause_ms / 1e3)
            for results in ("events", "geometry")
        ]
    _end([asdict(one) for one in found], _overheads(found), as_json=as_json, is_fine=found[0].is_fine)


def serve_openapi(
    *,
    cases: Annotated[int, typer.Option(min=1, help="Requests to make up, at least.")] = 2000,
    phases: Annotated[str, typer.Option(help="Of schemathesis.")] = ALL_PHASES,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Call all that the OpenAPI describes with values that schemathesis makes up; needs schemathesis."""
    with _folder() as folder:
        figures = call_everything(folder, cases, phases=phases, seed=seed)
    _end(asdict(figures), _called(figures), as_json=as_json, is_fine=figures.is_fine)


def serve_soak(
    *,
    minutes: Annotated[float, typer.Option(min=0.05, help="How long.")] = 60.0,
    clients: Annotated[int, typer.Option(min=1, help="At once.")] = 4,
    restart_every: Annotated[float, typer.Option(min=1.0, help="Seconds between two upsets, about.")] = 30.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Let random clients do all that clients do, restart the server meanwhile, and check what must never happen."""
    from benchmarks.serving.soak import Soak

    torch.set_num_threads(1)
    with _folder() as folder:
        figures = Soak(folder, minutes * 60, clients, restart_every, seed).run()
    _end(asdict(figures), _soaked(figures), as_json=as_json, is_fine=figures.is_fine)


def page_start(*, as_json: AsJson = False) -> None:
    """Time `longtake serve --open` until a browser shows 5,000 points, a path and a first answer; needs Chromium."""
    from benchmarks.serving.page_start import time_start

    with _folder() as folder:
        figures = time_start(folder)
    _end(asdict(figures), _started(figures), as_json=as_json, is_fine=figures.is_fine)


def page_soak(
    *,
    minutes: Annotated[float, typer.Option(min=0.05, help="How long.")] = 10.0,
    width: Annotated[int, typer.Option(min=320, help="Of the window in pixels; up to 760 it is a phone's.")] = 1280,
    as_json: AsJson = False,
) -> None:
    """Watch and ask a house in a browser for minutes, and compare what the page holds; needs Chromium."""
    from benchmarks.serving.page_soak import NUM_LOOKS, soak_page

    with _folder() as folder, counting("looking at the page", NUM_LOOKS) as advance:
        figures = soak_page(folder, minutes * 60, width=width, progress=advance)
    record = asdict(figures) | {"is_flat": figures.is_flat}
    _end(record, _soaked_page(figures), as_json=as_json, is_fine=figures.is_fine)


def page_pictures(
    folder: Annotated[Path, typer.Argument(help="Where page.jpg, page-STATE.jpg and others are written.")],
) -> None:
    """Take pictures of the page in each of its states, at two sizes, light and dark; needs Chromium."""
    from benchmarks.serving.page_pictures import LARGE, STATES, take_pictures

    folder.mkdir(parents=True, exist_ok=True)
    with _folder() as work, counting("taking pictures", len(LARGE) + len(STATES)) as advance:
        written = take_pictures(folder, work, progress=advance)
    for path in written:
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _end(record: object, blocks: Iterator[str | Table], *, as_json: bool, is_fine: bool) -> None:
    show(record, blocks, as_json=as_json)
    if not is_fine:
        raise SystemExit(1)


def _attacked(figures: "AttackFigures") -> Iterator[str | Table]:
    yield table(("malformed", "messages"), [(name, str(number)) for name, number in figures.kinds.items()])
    yield (
        f"\n{figures.num_messages} messages in {figures.seconds:.0f} s: {figures.num_errors} ended in an error event, "
        f"{figures.num_closed} in a closed socket, {len(figures.unanswered)} in neither."
    )
    yield from figures.unanswered
    yield _bits(figures.others_are_same, f"{figures.num_rounds} walks of another session meanwhile")
    yield _bits(figures.attacked_is_same, "The attacked session itself")
    before, most = figures.resident_before_bytes / 1e6, figures.resident_most_bytes / 1e6
    yield f"The server had {before:.0f} MB resident before, and at most {most:.0f} MB."


def _recovered(upsets: list[Upset], found: list[Recovery]) -> Iterator[str | Table]:
    rows = []
    for upset in upsets:
        some = [one for one in found if one.upset is upset]
        lost, back_s = sum(one.lost_frames for one in some), max(one.back_s for one in some)
        same = sum(one.num_same for one in some)
        rows.append((upset.value, str(len(some)), str(lost), f"{back_s:.1f}", f"{same} of {4 * len(some)}"))
    yield table(("", "rounds", "frames sent again", "back after s, at most", "sessions with the same bits"), rows)


def _churned(figures: ChurnFigures) -> Iterator[str | Table]:
    settled, last = f"after {figures.settled_after}", f"after {figures.num_sessions}"
    yield (
        f"{figures.num_sessions} sessions, {figures.num_frames} frames and {figures.num_questions} questions in "
        f"{figures.seconds:.0f} s:\n"
    )
    yield _usages({settled: figures.settled, last: figures.last})
    yield "\n" + ("nothing grew" if figures.is_flat else "something GREW")


def _lived(figures: "LiveFigures") -> Iterator[str | Table]:
    yield (
        f"{figures.num_sessions} sessions at {figures.fps:g} frames/s for {figures.seconds:g} s: "
        f"{figures.num_taken} of {figures.num_sent} frames taken, {figures.num_dropped} dropped and told.\n"
        f"Jain index {figures.jain:.4f}, "
        f"delay {figures.delay_p50_s * 1e3:.0f} ms at the median, {figures.delay_p99_s * 1e3:.0f} ms at p99."
    )


def _overheads(found: "list[OverheadFigures]") -> Iterator[str | Table]:
    yield f"{found[0].num_frames} frames of {found[0].size}, raw; ms:\n"
    rows = [
        (
            one.results,
            *(f"{value * 1e3:.2f}" for value in (one.step_p50_s, one.copy_p50_s)),
            *(f"{value * 1e3:.2f}" for value in (one.overhead_p50_s, one.overhead_p99_s)),
            f"{one.frames_per_s:.1f}",
            str(one.num_saved),
        )
        for one in found
    ]
    headings = ("client hears", "step p50", "copy p50", "beside p50", "p99", "frames/s", "saves")
    yield table(headings, rows)


def _called(figures: OpenApiFigures) -> Iterator[str | Table]:
    yield (
        f"{figures.num_cases} cases of {figures.num_operations} operations in {figures.seconds:.0f} s, "
        f"{figures.num_server_errors} replies of 500 or above.\n"
    )
    yield table(("status", "replies"), [(str(status), str(number)) for status, number in figures.statuses.items()])
    yield figures.failures


def _soaked(figures: "SoakFigures") -> Iterator[str | Table]:
    yield f"{figures.num_clients} clients for {figures.seconds:.0f} s:\n"
    yield table(("happened", "times"), [(name, str(number)) for name, number in figures.happened.items()])
    yield ""
    yield _usages({"fresh": figures.fresh, "at rest": figures.at_rest})
    yield (
        f"\nAt most {figures.most_resident_bytes / 1e6:.0f} MB resident; sessions were counted with at most "
        f"{figures.most_memory_bytes / 1e6:.1f} of {figures.budget_bytes / 1e6:.0f} MB."
    )
    yield f"{len(figures.problems)} problems" + ("" if figures.is_at_rest else ", and something was LEFT")
    yield from figures.problems


def _started(figures: "PageStart") -> Iterator[str | Table]:
    yield (
        f"{figures.shown_s:.1f} s to {figures.num_points} points, a path of {figures.num_places} and an answer; "
        f"a browser was asked for after {figures.asked_for_s:.1f} s."
    )


def _soaked_page(figures: "PageSoakFigures") -> Iterator[str | Table]:
    yield f"{figures.num_asked} questions in {figures.seconds:.0f} s, at most {figures.most_points} points:\n"
    headings = ("s", "frames", "heap MB", "WebGL MB", "points", "received", "nodes", "poses", "chunks", "answers")
    rows = [
        (
            *(f"{sample.seconds:.0f}", str(sample.num_frames)),
            *(f"{sample.heap_bytes / 1e6:.1f}", f"{sample.gl_bytes / 1e6:.1f}"),
            *(str(sample.num_points), str(sample.num_received), str(sample.num_nodes)),
            *(str(sample.lists[name]) for name in ("poses", "chunks", "answers")),
        )
        for sample in figures.samples
    ]
    yield table(headings, rows)
    yield "\n" + ("flat, and within all bounds" if figures.is_flat else "something GREW")
    yield from figures.complaints


def _usages(usages: dict[str, Usage]) -> Table:
    names = {
        "resident MB": lambda usage: f"{usage.resident_bytes / 1e6:.0f}",
        "files": lambda usage: str(usage.num_files),
        "threads": lambda usage: str(usage.num_threads),
        "sockets": lambda usage: str(usage.num_sockets),
        "folders": lambda usage: str(usage.num_folders),
    }
    return table(("", *usages), [(name, *map(cell, usages.values())) for name, cell in names.items()])


def _bits(is_same: bool, what: str) -> str:
    return f"{what}: {'identical to the bit' if is_same else 'OTHER BITS'}."
