"""From what was asked for to an open session: how a model is run by default, and with which changes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from longtake.attention.backend import Backend
from longtake.errors import BudgetError, SettingError
from longtake.geometry.config import Attention, GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.budget import Budget
from longtake.memory.policies.budgeted import Managed
from longtake.memory.policies.lockstep import ContextRetention, Window
from longtake.memory.policy import StreamPolicy
from longtake.memory.registry import stream_policy_named
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.runtime.execution import Precision
from longtake.runtime.keyframes import TRAINED_FRAMES, ByFlow, EveryNth, KeyframeRule
from longtake.runtime.memory_plan import MemoryPlan, trunk_layout
from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import WindowedSession
from longtake.runtime.windows import Windows
from longtake.types import counted

_EVERY_FRAME = EveryNth(1)
_TRAINED_RANGE = Windows(size=TRAINED_FRAMES)
_PUBLISHED_ALIGNMENT = Alignment()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """All that decides how a video is watched, whatever its size."""

    image_size: int
    """The longer side of the images, in pixels."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Heights and widths that the network was trained on, of which the one of the video's shape is taken; none for the
    longer side alone."""
    num_scale_frames: int
    retention: StreamPolicy
    keyframes: KeyframeRule = _EVERY_FRAME
    windows: Windows | None = _TRAINED_RANGE
    """None for one sequence however long the video is."""
    alignment: Alignment = _PUBLISHED_ALIGNMENT
    """Between windows, where there are several."""
    budget: Budget | None = None
    """Of the memory; None for what the rule says."""
    precision: Precision = Precision.FP32
    """Of products, and of keys and values in the trunk; the model's weights are loaded for it."""


PUBLISHED = SessionSettings(
    image_size=518, num_scale_frames=8, retention=ContextRetention(anchors=8, window=64, history=4096)
)
"""As published checkpoints are run: every frame is kept up to the range they were trained on, then a window begins."""
CAUSAL = SessionSettings(image_size=518, num_scale_frames=1, retention=Managed(), windows=None)
"""For STream3R and StreamVGGT: no scale block, no windows, and a managed memory of a constant size."""
SMALL = SessionSettings(
    image_size=126,
    num_scale_frames=8,
    retention=ContextRetention(anchors=8, window=16, history=512),
    keyframes=EveryNth(2),
    windows=Windows(size=64, overlap_frames=16),
    alignment=Alignment(Anchoring.ROBUST),
)
"""For networks of a few million parameters, micro-map first of all; chosen by `bench quality --split validation`."""


_PUBLISHED_WIDTH = 512
"""Networks of fewer channels are small ones of our own make."""


def usual_settings(config: GeometryConfig) -> SessionSettings:
    """How a network is run if nothing else is said: as it was trained, at the size it was trained for."""
    is_small = config.width < _PUBLISHED_WIDTH
    if config.attention is Attention.CONTEXT:
        return replace(SMALL if is_small else PUBLISHED, sizes=config.sizes)
    rule = Window() if config.attention is Attention.WINDOW else CAUSAL.retention
    image_size = SMALL.image_size if is_small else CAUSAL.image_size
    return replace(CAUSAL, retention=rule, image_size=image_size, sizes=config.sizes)


def adjusted_session(
    usual: SessionSettings,
    *,
    size: int | None = None,
    memory: str | int | None = None,
    policy: str | None = None,
    keyframes: str | None = None,
    windows: str | None = None,
    align: str | None = None,
    precision: Precision = Precision.FP32,
) -> SessionSettings:
    """How a network is usually run, with what people write in place of it."""
    return replace(
        usual,
        image_size=usual.image_size if size is None else size,
        sizes=usual.sizes if size is None else (),
        retention=usual.retention if policy is None else stream_policy_named(policy),
        keyframes=usual.keyframes if keyframes is None else parse_keyframes(keyframes),
        windows=usual.windows if windows is None else parse_windows(windows),
        alignment=usual.alignment if align is None else Alignment.named(align),
        budget=None if memory is None else Budget.parse(str(memory)),
        precision=precision,
    )


def open_session(
    model: GeometryModel,
    settings: SessionSettings,
    size: tuple[int, int],
    backend: Backend | None = None,
    *,
    reserve_frames: int = 0,
) -> VideoSession:
    """A session for images of this height and width, with room for so many frames more while forks live."""
    budget_bytes = None if settings.budget is None else settings.budget.num_bytes
    with _naming_reserve(reserve_frames):
        session = SequenceSession(
            model,
            _memory_plan(model.config, settings, size, reserve_frames),
            keyframes=settings.keyframes,
            backend=backend,
            budget_bytes=budget_bytes,
            compute_dtype=settings.precision.dtype,
        )
    return session if settings.windows is None else WindowedSession(session, settings.windows, settings.alignment)


def require_budget(config: GeometryConfig, settings: SessionSettings, size: tuple[int, int]) -> None:
    """Refuse what `open_session` would for images of this height and width; nothing is allocated."""
    plan = _memory_plan(config, settings, size, 0)
    if settings.budget is not None and settings.budget.num_bytes is not None:
        plan.fit(settings.budget.num_bytes).requirements.plan(settings.budget.num_bytes)


def memory_bytes(config: GeometryConfig, settings: SessionSettings, size: tuple[int, int]) -> int:
    """Of keys and values that `open_session` would allocate for images of this height and width."""
    plan = _memory_plan(config, settings, size, 0)
    budget_bytes = None if settings.budget is None else settings.budget.num_bytes
    if budget_bytes is not None:
        plan = plan.fit(budget_bytes)
    return sum(stream.num_bytes for stream in plan.requirements.plan(budget_bytes).values())


def _memory_plan(
    config: GeometryConfig, settings: SessionSettings, size: tuple[int, int], reserve_frames: int
) -> MemoryPlan:
    retention, budget = _within(settings.windows, settings.retention), settings.budget
    if budget is not None and budget.num_frames is not None:
        retention = retention.of_frames(budget.num_frames, trunk_layout(config, size))
    return MemoryPlan(
        config=config,
        size=size,
        retention=retention,
        num_scale_frames=settings.num_scale_frames,
        reserve_frames=reserve_frames,
        trunk_dtype=settings.precision.dtype,
    )


@contextmanager
def _naming_reserve(reserve_frames: int) -> Iterator[None]:
    """Says of a memory that is too small which part of it was set aside, where that may be the cause."""
    try:
        yield
    except BudgetError as error:
        if not reserve_frames:
            raise
        raise BudgetError(
            f"{str(error).removesuffix('.')}, with room for {counted(reserve_frames, 'frame')} set aside by "
            "reserve_frames; reserve fewer, or give it more memory."
        ) from error


def _within(windows: Windows | None, retention: StreamPolicy) -> StreamPolicy:
    """The same rule without room for more kept frames than a window has."""
    if windows is None or not isinstance(retention, ContextRetention):
        return retention
    if retention.history is not None and retention.history <= windows.size:
        return retention
    return replace(retention, history=max(windows.size, retention.anchors + retention.window))


def parse_keyframes(text: str) -> KeyframeRule:
    """`every:6` for every sixth frame, `flow:12px` for whenever the picture has moved by 12 pixels."""
    if match := re.fullmatch(r"every:(\d+)", text):
        return EveryNth(int(match[1]))
    if match := re.fullmatch(r"flow:(\d+(?:\.\d+)?)(?:px)?", text):
        return ByFlow(float(match[1]))
    raise SettingError(f"Expected keyframes as every:6 or flow:12px, but got '{text}'.")


def parse_windows(text: str) -> Windows | None:
    """`128/16` for windows of 128 kept frames that share 16 frames, `128` for the usual overlap, `none` for one."""
    if text == "none":
        return None
    if match := re.fullmatch(r"(\d+)(?:/(\d+))?", text):
        return Windows(size=int(match[1]), overlap_frames=None if match[2] is None else int(match[2]))
    raise SettingError(f"Expected windows as 128/16, kept frames by shared frames, or none, but got '{text}'.")
