"""The page for minutes, in a real browser on a real server: what it holds while a house goes on and on."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving.browser import chromium_ready
from benchmarks.serving.process import ServerProcess

NUM_LOOKS = 10
_HOUSE = "world:9?frames=20000&size=126x98"
_QUESTION = "Which room are you in now?"
_ASK_EVERY_S = 3.0
_PATIENCE_MS = 120_000
_SLACK_BYTES = 2_000_000
_POSE_BYTES = 1_500
"""Of the heap, for each frame: its pose is kept until there are 16,384, its points until others take their place."""
_COUNT_GL = """(() => {
  const context = WebGL2RenderingContext.prototype, bound = new Map(), sizes = new Map();
  const after = (name, hear) => {
    const call = context[name];
    context[name] = function (...given) { const made = call.apply(this, given); hear(...given); return made; };
  };
  after("bindBuffer", (target, buffer) => bound.set(target, buffer));
  after("bindTexture", (target, texture) => bound.set(target, texture));
  after("bufferData", (target, data) => sizes.set(bound.get(target), data.byteLength ?? data));
  after("deleteBuffer", (buffer) => sizes.delete(buffer));
  after("deleteTexture", (texture) => sizes.delete(texture));
  after("texStorage2D", (target, levels, format, width, height) => sizes.set(bound.get(target), 16 * width * height));
  after("texImage2D", (target, ...more) => {
    const { width, height } = more.at(-1)?.width ? more.at(-1) : { width: more[2], height: more[3] };
    sizes.set(bound.get(target), 4 * width * height);
  });
  window.countedGlBytes = () => [...sizes.values()].reduce((sum, size) => sum + size, 0);
})()"""
_LISTS = """() => { const { state, view, chat } = longtake.page, { viewer } = longtake; return {
  poses: state.frames.length, path: viewer.counts.path, keyframes: viewer.counts.frustums, chunks: viewer.counts.chunks,
  memory: state.memory.samples.length, speed: state.speed.samples.length, marks: state.marks.length,
  answers: state.answers.size, shown: chat.items.size, waiting: view.waiting.size,
}; }"""
_NUM_ANSWERED = (
    """() => [...longtake.page.state.answers.values()].filter(({ isDone, text }) => isDone && text).length"""
)
LIMITS = {
    "poses": 16_384,
    "path": 8_192,
    "keyframes": 256,
    "memory": 1_024,
    "speed": 1_024,
    "marks": 400,
    "answers": 120,
    "shown": 120,
    "waiting": 64,
}
"""Of lists, as docs/page.md says them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSample:
    """What a page holds at one moment, after its garbage was collected."""

    seconds: float
    num_frames: int
    heap_bytes: int
    buffer_bytes: int
    """Of array buffers, which lie outside the heap."""
    gl_bytes: int
    """Of buffers and textures that were asked of WebGL."""
    num_points: int
    num_received: int
    num_nodes: int
    num_listeners: int
    lists: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSoakFigures:
    """A page from its first frames to the end."""

    seconds: float
    most_points: int
    """That the page may hold."""
    num_asked: int
    num_answered: int
    """Of the answers that the page still has."""
    complaints: list[str]
    samples: list[PageSample]

    @property
    def is_flat(self) -> bool:
        """From the middle on nothing grows but what is kept of each frame, and that to its bound."""
        middle, last = self.samples[len(self.samples) // 2], self.samples[-1]
        frames, points = last.num_frames - middle.num_frames, last.num_points - middle.num_points
        return (
            last.heap_bytes - middle.heap_bytes <= _SLACK_BYTES + _POSE_BYTES * frames
            and last.gl_bytes - middle.gl_bytes <= _SLACK_BYTES + 16 * points
            and all(sample.num_points <= self.most_points for sample in self.samples)
            and all(sample.lists[name] <= most for sample in self.samples for name, most in LIMITS.items())
        )

    @property
    def is_fine(self) -> bool:
        return self.is_flat and not self.complaints and self.num_answered > 0


def soak_page(
    folder: Path, seconds: float, *, width: int, progress: Callable[[int], None] = lambda _: None
) -> PageSoakFigures:
    """Watch a house for so long, ask it every few seconds, and look at the page ten times in between."""
    with ServerProcess(folder) as server, chromium_ready() as launch, launch() as browser:
        made = server.call("POST", "/v1/sessions", {"source": _HOUSE})
        page = browser.new_page(viewport={"width": width, "height": 800})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.add_init_script(_COUNT_GL)
        page.goto(f"{server.url}/#session={made.record['id']}")
        page.wait_for_function("() => window.longtake?.counts?.points > 5000", timeout=_PATIENCE_MS)
        return _Soak(page).run(seconds, complaints, progress)


class _Soak:
    """One page, its questions and its samples."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._tools = page.context.new_cdp_session(page)
        self._started_s = time.monotonic()
        self._num_asked = 0

    def run(self, seconds: float, complaints: list[str], progress: Callable[[int], None]) -> PageSoakFigures:
        samples = [self._sample()]
        for number in range(1, NUM_LOOKS + 1):
            self._ask_until(self._started_s + seconds * number / NUM_LOOKS)
            samples.append(self._sample())
            progress(1)
        took_s = time.monotonic() - self._started_s
        return PageSoakFigures(
            seconds=took_s,
            most_points=self._page.evaluate("longtake.counts.capacity"),
            num_asked=self._num_asked,
            num_answered=self._page.wait_for_function(_NUM_ANSWERED, timeout=_PATIENCE_MS).json_value(),
            complaints=complaints,
            samples=samples,
        )

    def _ask_until(self, ends_s: float) -> None:
        while (left_s := ends_s - time.monotonic()) > 0:
            self._page.fill("#question", _QUESTION)
            self._page.press("#question", "Enter")
            self._num_asked += 1
            self._page.wait_for_timeout(1000 * min(_ASK_EVERY_S, left_s))

    def _sample(self) -> PageSample:
        self._tools.send("HeapProfiler.collectGarbage")
        usage, counters = self._tools.send("Runtime.getHeapUsage"), self._tools.send("Memory.getDOMCounters")
        counts = self._page.evaluate("longtake.counts")
        return PageSample(
            seconds=time.monotonic() - self._started_s,
            num_frames=self._page.evaluate("longtake.page.state.numFrames"),
            heap_bytes=usage["usedSize"],
            buffer_bytes=usage["backingStorageSize"],
            gl_bytes=self._page.evaluate("countedGlBytes()"),
            num_points=counts["points"],
            num_received=counts["received"],
            num_nodes=counters["nodes"],
            num_listeners=counters["jsEventListeners"],
            lists=self._page.evaluate(_LISTS),
        )
