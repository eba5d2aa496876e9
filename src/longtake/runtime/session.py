"""The streaming session of one video: frames go in one by one, geometry comes out, memory stays within its bound."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.attention.backend import Backend, NormBounds, SdpaBackend
from longtake.attention.recall import StreamRecall
from longtake.attention.triton import TritonBackend
from longtake.errors import SavedSessionError, SettingError
from longtake.geometry.config import TRUNK
from longtake.geometry.model import GeometryModel, Prediction
from longtake.layers.block import Block
from longtake.memory.budget import require_room
from longtake.memory.change import Change, Changing, change_together
from longtake.memory.memory import Memory
from longtake.memory.policy import Keep
from longtake.memory.saved import Pieces, SavedTensors, TensorFile
from longtake.memory.shared_pool import StreamUse
from longtake.memory.tokens import Tokens
from longtake.memory.transaction import Transaction
from longtake.runtime.capture import captured_twin
from longtake.runtime.execution import portable_by
from longtake.runtime.fused_model import COMPUTING, FusedModel, products_in
from longtake.runtime.keyframes import EveryNth, KeptCamera, KeyframeRule, rule_from_record
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.record import DTYPES, SessionRecord, fingerprint
from longtake.runtime.recorded_step import RecordedModel, recorded_model, why_step_unrecorded
from longtake.runtime.steps import Frame, Look, Progress, VideoSession, check_frame, describe, own_pixels
from longtake.types import FrameKind, Geometry
from longtake.weights.familiarity import UNJUDGED, Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """How far a session has come; replaced as a whole."""

    waiting: tuple[Float[Tensor, "3 height width"], ...] = ()
    """Frames that wait until the scale block is complete, pixels from 0 to 1."""
    waiting_s: tuple[float, ...] = ()
    first_frame: int = 0
    """Frames of sequences that have ended before this one."""
    num_answered: int = 0
    """Of this sequence."""
    scale_block: int = 0
    """How many frames it has; 0 until they were answered."""
    last_kept: KeptCamera | None = None
    last_s: float | None = None
    """Time of the newest frame; None before the first."""


class SequenceSession(VideoSession):
    """One video. The first frames form the scale block and are answered together; then each frame at once.

    A video that ends before its scale block is complete has a smaller one.
    """

    def __init__(
        self,
        model: GeometryModel,
        plan: MemoryPlan,
        *,
        keyframes: KeyframeRule | None = None,
        backend: Backend | None = None,
        budget_bytes: int | None = None,
        compute_dtype: torch.dtype = torch.float32,
        capture: bool | None = None,
    ) -> None:
        """A session on a model, with a memory allocated here.

        `compute_dtype` decides the products' type whatever autocast surrounds the session. `capture` records whole
        steps, or where that cannot be the parts that never change, as CUDA graphs: the same bits, less work for the
        host; by default wherever there is CUDA.
        """
        self._model = model
        self._device = next(model.parameters()).device
        self._plan = plan if budget_bytes is None else plan.fit(budget_bytes)
        self._keyframes: KeyframeRule = keyframes or EveryNth()
        self._backend = backend or SdpaBackend()
        self._budget_bytes = budget_bytes
        self._compute_dtype = compute_dtype
        if capture and self._device.type != "cuda":
            raise SettingError(f"Recording needs a CUDA device, but the model is on {self._device}; leave it out here.")
        self._is_captured = self._device.type == "cuda" if capture is None else capture
        streams = self._plan.requirements.plan(budget_bytes)
        require_room(sum(stream.num_bytes for stream in streams.values()), self._device)
        self._memory = Memory(streams, self._device)
        with torch.no_grad():
            self._grid = model.grid(*plan.size)
        self._bounds = {TRUNK: _norm_bounds(model)}
        self._network, self._recorded = self._computing()
        self._clock = Changing(_Clock())
        self._weights = cache(partial(fingerprint, model))  # shared with forks; looked for once

    @property
    def plan(self) -> MemoryPlan:
        """What the memory was built for, after it was made to fit the budget."""
        return self._plan

    @property
    def keyframes(self) -> KeyframeRule:
        return self._keyframes

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def is_captured(self) -> bool:
        """Whether kernels are recorded as CUDA graphs."""
        return self._is_captured

    @property
    def why_portable(self) -> str | None:
        """Why steps go through torch's kernels, one part after another; None where they are recorded as a whole."""
        if self._recorded is not None:
            return None
        if self._device.type == "cuda" and not self._is_captured:
            return "recording was declined"
        if not isinstance(self._backend, TritonBackend):
            return portable_by(self._backend.name)
        return why_step_unrecorded(self._memory, self._device) or f"products are computed in {self._compute_dtype}"

    @property
    def num_final(self) -> int:
        """All that were answered."""
        return self._clock.value.first_frame + self._clock.value.num_answered

    @property
    def provisional(self) -> Geometry:
        """None: nothing is looked at again."""
        return self.nothing()

    @property
    def num_kept(self) -> int:
        """Frames remembered so far."""
        return self._memory.num_kept

    @property
    def progress(self) -> Progress:
        return Progress(
            size=self._plan.size,
            num_frames=self.num_final + len(self._clock.value.waiting),
            first_frame=self._clock.value.first_frame,
            num_kept=self.num_kept,
            capacity=self._plan.requirements.full_after,
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values, and of what a policy notes about them: declared once, never more."""
        return self._memory.num_bytes

    @property
    def live_bytes(self) -> int:
        return sum(use.live_bytes for use in self.use().values())

    def remembered(self, layer: int) -> Tokens:
        """Which tokens a layer of the trunk remembers now."""
        return self._memory.tokens(TRUNK, layer)

    def use(self) -> Mapping[str, StreamUse]:
        """How the memory's slots are used now."""
        return self._memory.use()

    def look(self, frame: Frame, timestamp_s: float | None = None) -> AbstractContextManager[Look]:
        """Of no frame while the scale block fills, then of all its frames, then of each."""
        clock = self._with_frame(frame, timestamp_s)
        if not clock.scale_block and len(clock.waiting) < self._plan.num_scale_frames:
            return nullcontext(self._unanswered(clock))
        return self._answered(clock)

    def look_last(self, frame: Frame, timestamp_s: float | None = None) -> AbstractContextManager[Look]:
        """Of all that waits, this frame the last of it; the next sequence counts its frames on."""
        clock = self._clock.value
        return self.look_ending(frame, timestamp_s, first_frame=self.num_final + len(clock.waiting) + 1)

    @contextmanager
    def look_ending(self, frame: Frame, timestamp_s: float | None = None, *, first_frame: int) -> Iterator[Look]:
        """The same, with the number that the next sequence begins with."""
        clock = self._with_frame(frame, timestamp_s)
        with self._answered(clock) as look:
            geometry = look.geometry
        after = _Clock(first_frame=first_frame, last_s=clock.last_s)
        yield Look(geometry, 0, (partial(self._clock.become_with, after), self._memory.clear_with))

    def look_at_rest(self) -> AbstractContextManager[Look]:
        """Of the frames of a scale block that the video ended before."""
        clock = self._clock.value
        return self._answered(clock) if clock.waiting else nullcontext(self._unanswered(clock))

    def fork(self) -> "SequenceSession":
        """A session that goes on from here on its own; end it with `close` or a `with` block."""
        branch = copy.copy(self)
        branch._memory, branch._clock = self._memory.fork(), Changing(self._clock.value)
        return branch

    def hold(self) -> "SequenceSession | None":
        """This session as it is now, for `as_file` alone, while it goes on; end it with `close`.

        None on a GPU, which copies in turn with its steps.
        """
        if self._device.type != "cpu":
            return None
        held = copy.copy(self)
        held._memory, held._clock = self._memory.hold(), Changing(self._clock.value)
        return held

    def clear(self) -> None:
        """Forget everything and start a new sequence of the same size."""
        self._memory.leave()
        change_together(partial(self._clock.become_with, _Clock()), self._memory.clear_with)

    def close(self) -> None:
        """End the session; a fork gives its slots back."""
        self._memory.close()

    def __enter__(self) -> "SequenceSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_file(
        self, *, fit: str | None = None, source_size: tuple[int, int] | None = None, judged: Judged = UNJUDGED
    ) -> TensorFile:
        """All that is needed to go on in another process."""
        return TensorFile(
            self.contents(), replace(self.record(), fit=fit, source_size=source_size, judged=judged).to_dict()
        )

    def record(self) -> SessionRecord:
        """Settings and clocks, as a file says them."""
        clock = self._clock.value
        return SessionRecord.of(
            self._plan,
            weights=self._weights(),
            keyframes=self._keyframes.to_record(),
            backend=self._backend.name,
            budget_bytes=self._budget_bytes,
            compute_dtype=str(self._compute_dtype),
            first_frame=clock.first_frame,
            num_answered=clock.num_answered,
            scale_block=clock.scale_block,
            last_kept_index=0 if clock.last_kept is None else clock.last_kept.frame_index - clock.first_frame,
            waiting_timestamps_s=clock.waiting_s,
            last_s=clock.last_s,
        )

    def contents(self) -> dict[str, Pieces]:
        """All that a file holds beside the record, to be written piece by piece."""
        self._memory.leave()
        clock = self._clock.value
        waiting = Pieces(torch.float32, (len(clock.waiting), 3, *self._plan.size), clock.waiting)
        pose = torch.zeros(9) if clock.last_kept is None else clock.last_kept.pose_encoding
        return {"waiting": waiting, "last_kept_pose": Pieces.of(pose), **self._memory.contents()}

    @classmethod
    def resume(cls, path: Path, model: GeometryModel, backend: Backend | None = None) -> "SequenceSession":
        """Go on where `save` was called, with the same weights; bit-identical on the same backend."""
        saved = SavedTensors(path)
        record = SessionRecord.from_dict(saved.record)
        if record.windowed is not None:
            raise SavedSessionError(
                f"{path} is a saved session of windows; resume it with `resume_session` or `WindowedSession.resume`."
            )
        return cls.restored(saved, record, model, backend)

    @classmethod
    def restored(
        cls, saved: SavedTensors, record: SessionRecord, model: GeometryModel, backend: Backend | None
    ) -> "SequenceSession":
        """The session that `record` and `contents` tell of."""
        record.require_weights(fingerprint(model))
        session = cls(
            model,
            record.plan(model.config),
            keyframes=rule_from_record(record.keyframes),
            backend=backend or record.make_backend(),
            budget_bytes=record.budget_bytes,
            compute_dtype=DTYPES[record.compute_dtype],
        )
        session._memory.restore(saved)
        shape = (len(record.waiting_timestamps_s), 3, *record.size)
        waiting = saved.read("waiting", torch.float32, shape).to(session._device, copy=True)
        last_kept = None
        if record.scale_block:
            index, pose = record.last_kept_index, saved.read("last_kept_pose", torch.float32, (9,))
            frame, is_scale = record.first_frame + index, index < record.scale_block
            last_kept = KeptCamera(frame, is_scale, pose.to(session._device, copy=True))
        session._clock.become(
            _Clock(
                waiting=tuple(waiting),
                waiting_s=record.waiting_timestamps_s,
                first_frame=record.first_frame,
                num_answered=record.num_answered,
                scale_block=record.scale_block,
                last_kept=last_kept,
                last_s=record.last_s,
            )
        )
        return session

    def _with_frame(self, frame: Frame, timestamp_s: float | None) -> _Clock:
        """With one more that waits; refused where the session cannot take it."""
        self.check(frame)
        clock = self._clock.value
        time_s = float(self.num_final + len(clock.waiting)) if timestamp_s is None else timestamp_s
        return replace(
            clock,
            waiting=(*clock.waiting, own_pixels(frame, self._device)),
            waiting_s=(*clock.waiting_s, time_s),
            last_s=time_s,
        )

    @contextmanager
    def _answered(self, clock: _Clock) -> Iterator[Look]:
        """All frames that wait, looked at together."""
        is_scale, num_frames = not clock.scale_block, len(clock.waiting)
        scale_block = clock.scale_block or num_frames
        keep = Keep.YES if is_scale else self._keyframes.before(clock.num_answered - scale_block)
        images = torch.stack(clock.waiting).unsqueeze(0)
        self._memory.leave()
        with ExitStack() as stack:
            with torch.no_grad(), products_in(self._compute_dtype, self._device):
                with self._alone():
                    recorded = None if is_scale else self._recorded
                    if recorded is not None:
                        recorded.encode(images)  # begun on the GPU before the host looks for places
                    begun = self._memory.begin(num_frames, keep, on_device=recorded is not None)
                    transaction = stack.enter_context(begun)
                    if recorded is not None:
                        prediction = recorded.predict(self._memory, transaction)
                    else:
                        recall = StreamRecall(transaction, self._backend, scale_block, self._bounds)
                        prediction = self._network(images, recall, self._grid)
                geometry = self._describe(prediction, clock)
                kept = keep is Keep.YES or (keep is Keep.DEFERRED and self._judge(geometry))
            last_kept = clock.last_kept
            if kept:
                last_kept = KeptCamera(geometry.frame_index[-1], is_scale, geometry.pose_encoding[-1])
            else:
                geometry = replace(geometry, kind=(FrameKind.PASSING,))
            after = _Clock(
                first_frame=clock.first_frame,
                num_answered=clock.num_answered + num_frames,
                scale_block=scale_block,
                last_kept=last_kept,
                last_s=clock.last_s,
            )
            yield Look(
                geometry,
                num_kept=self.num_kept + (num_frames if kept else 0),
                parts=(partial(self._clock.become_with, after), *([partial(self._keep, transaction)] if kept else [])),
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """On a GPU one step at a time is computed, on the device of the model."""
        if self._device.type != "cuda":
            yield
            return
        with COMPUTING, torch.cuda.device(self._device):
            yield

    def _computing(self) -> tuple[Callable[..., Prediction], RecordedModel | None]:
        """The network as it is computed, and as it is recorded."""
        model, backend, halved = self._model, self._backend, self._compute_dtype != torch.float32
        if isinstance(backend, TritonBackend) and halved and why_step_unrecorded(self._memory, self._device) is None:
            fused = FusedModel(model, self._compute_dtype)
            if not self._is_captured:
                return fused, None
            return fused, recorded_model(model, self._grid, self._compute_dtype, backend, self._bounds)
        return captured_twin(model) if self._is_captured else model, None

    def _unanswered(self, clock: _Clock) -> Look:
        return Look(self.nothing(), num_kept=self.num_kept, parts=(partial(self._clock.become_with, clock),))

    def _keep(self, transaction: Transaction, change: Change) -> None:
        with products_in(self._compute_dtype, self._device):  # some policies multiply keys
            transaction.commit_with(change)

    def _judge(self, geometry: Geometry) -> bool:
        assert self._clock.value.last_kept is not None
        return self._keyframes.after(geometry, self._clock.value.last_kept)

    def _describe(self, prediction: Prediction, clock: _Clock) -> Geometry:
        """The frames that wait, taken as kept."""
        num_frames, first = len(clock.waiting), clock.first_frame + clock.num_answered
        return describe(
            prediction,
            self._model.config.camera,
            frame_index=range(first, first + num_frames),
            timestamps_s=clock.waiting_s,
            kinds=(FrameKind.KEYFRAME if clock.scale_block else FrameKind.SCALE,) * num_frames,
        )

    def nothing(self) -> Geometry:
        """What is known of no frame."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(0, *shape, device=self._device)

        height, width = self._plan.size
        return Geometry(
            frame_index=(),
            timestamp_s=(),
            kind=(),
            window=(),
            provisional=(),
            pose_encoding=zeros(9),
            world_from_camera=zeros(4, 4),
            intrinsics=zeros(3, 3),
            depth=zeros(height, width),
            depth_confidence=zeros(height, width),
            descriptor=zeros(self._model.config.width),
        )

    def check(self, frame: Frame) -> None:
        """Refuse a frame this session cannot take, in one sentence."""
        check_frame(frame, self._plan.size)


def _norm_bounds(model: GeometryModel) -> list[NormBounds | None]:
    """What norms say of the queries and keys of each global block, by their weights alone."""
    blocks = [block for block in model.trunk.global_blocks if isinstance(block, Block)]
    found = [block.attn.longest() for block in blocks]
    return [None if longest is None else NormBounds(*longest) for longest in found]
