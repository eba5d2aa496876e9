"""The streaming session of one video: frames go in one by one, geometry comes out, memory stays within its bound."""

import copy
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.attention.backend import Backend
from longtake.attention.recall import StreamRecall
from longtake.attention.sdpa import SdpaBackend
from longtake.errors import SavedSessionError, SettingError
from longtake.geometry.config import TRUNK
from longtake.geometry.model import GeometryModel, Prediction
from longtake.memory.budget import require_room
from longtake.memory.memory import Memory
from longtake.memory.policy import Keep
from longtake.memory.saved import Pieces, SavedTensors, write_tensors
from longtake.memory.shared_pool import StreamUse
from longtake.memory.tokens import Tokens
from longtake.runtime.capture import captured_twin
from longtake.runtime.describe import describe
from longtake.runtime.keyframes import EveryNth, KeptCamera, KeyframeRule, rule_from_record
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.record import DTYPES, SessionRecord, fingerprint
from longtake.runtime.steps import Frame, VideoSession, check_frame, own_pixels
from longtake.types import FrameKind, Geometry


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Frames that wait until the scale block is complete, pixels from 0 to 1."""

    frames: tuple[Float[Tensor, "3 height width"], ...] = ()
    timestamps_s: tuple[float, ...] = ()


class SequenceSession(VideoSession):
    """One video. The first frames form the scale block and are answered together; then each frame at once.

    A frame that is refused or fails leaves the session as it was.
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

        `compute_dtype` decides the products' type whatever autocast surrounds the session. `capture` records the parts
        that never change as CUDA graphs: the same bits, less work for the host; by default wherever there is CUDA.
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
        self._network = captured_twin(model) if self._is_captured else model
        self._lock = threading.Lock() if self._is_captured else nullcontext()
        streams = self._plan.requirements.plan(budget_bytes)
        require_room(sum(stream.num_bytes for stream in streams.values()), self._device)
        self._memory = Memory(streams, self._device)
        with torch.no_grad():
            self._grid = model.grid(*plan.size)
        self._waiting = _Waiting()
        self._num_answered = 0
        self._scale_block = 0
        self._last_kept: KeptCamera | None = None

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
    def num_final(self) -> int:
        """All that were answered."""
        return self._num_answered

    @property
    def provisional(self) -> Geometry:
        """None: nothing is looked at again."""
        return self.nothing()

    @property
    def num_kept(self) -> int:
        """Frames remembered so far."""
        return self._memory.num_kept

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values, and of what a policy notes about them: declared once, never more."""
        return self._memory.num_bytes

    def remembered(self, layer: int) -> Tokens:
        """Which tokens a layer of the trunk remembers now."""
        return self._memory.tokens(TRUNK, layer)

    def use(self) -> Mapping[str, StreamUse]:
        """How the memory's slots are used now."""
        return self._memory.use()

    def step(self, frame: Frame, timestamp_s: float | None = None) -> Geometry:
        """Take the next frame and return what became known: nothing while the scale block fills, then its frames.

        Pixels are 0 to 255 as bytes or 0 to 1 as floats. Without a timestamp a frame's index stands in for it.
        """
        self.check(frame)
        index = self._num_answered + len(self._waiting.frames)
        waiting = _Waiting(
            (*self._waiting.frames, own_pixels(frame, self._device)),
            (*self._waiting.timestamps_s, float(index) if timestamp_s is None else timestamp_s),
        )
        if not self._scale_block and len(waiting.frames) < self._plan.num_scale_frames:
            self._waiting = waiting
            return self.nothing()
        return self._answer(waiting)

    def finish(self) -> Geometry:
        """Answer the frames of a video that ended before its scale block was complete, as a smaller block."""
        return self._answer(self._waiting) if self._waiting.frames else self.nothing()

    def fork(self) -> "SequenceSession":
        """A session that goes on from here on its own; end it with `close` or a `with` block."""
        branch = copy.copy(self)
        branch._memory = self._memory.fork()
        return branch

    def clear(self) -> None:
        """Forget everything and start a new sequence of the same size."""
        self._memory.clear()
        self._waiting = _Waiting()
        self._num_answered = 0
        self._scale_block = 0
        self._last_kept = None

    def close(self) -> None:
        """End the session; a fork gives its slots back."""
        self._memory.close()

    def __enter__(self) -> "SequenceSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def save(self, path: Path, *, fit: str | None = None) -> None:
        """Write all that is needed to go on in another process; the file is complete or absent."""
        write_tensors(path, self.contents(), replace(self.record(), fit=fit).to_dict())

    def record(self) -> SessionRecord:
        """Settings and clocks, as a file says them."""
        return SessionRecord.of(
            self._plan,
            weights=fingerprint(self._model),
            keyframes=self._keyframes.to_record(),
            backend=self._backend.name,
            budget_bytes=self._budget_bytes,
            compute_dtype=str(self._compute_dtype),
            num_answered=self._num_answered,
            scale_block=self._scale_block,
            last_kept_index=0 if self._last_kept is None else self._last_kept.frame_index,
            waiting_timestamps_s=self._waiting.timestamps_s,
        )

    def contents(self) -> dict[str, Pieces]:
        """All that a file holds beside the record, to be written piece by piece."""
        waiting = Pieces(torch.float32, (len(self._waiting.frames), 3, *self._plan.size), self._waiting.frames)
        pose = torch.zeros(9) if self._last_kept is None else self._last_kept.pose_encoding
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
        waiting = saved["waiting"].to(session._device, copy=True)
        session._waiting = _Waiting(tuple(waiting), record.waiting_timestamps_s)
        session._num_answered = record.num_answered
        session._scale_block = record.scale_block
        if record.scale_block:
            index, pose = record.last_kept_index, saved["last_kept_pose"].to(session._device, copy=True)
            session._last_kept = KeptCamera(index, index < record.scale_block, pose)
        return session

    @torch.no_grad()
    def _answer(self, clip: _Waiting) -> Geometry:
        scale_block = self._scale_block or len(clip.frames)
        since_scale_block = self._num_answered - scale_block
        keep = self._keyframes.before(since_scale_block) if self._scale_block else Keep.YES
        images = torch.stack(clip.frames)
        with self._memory.begin(len(images), keep) as transaction, self._lock, self._precision():
            recall = StreamRecall(transaction, self._backend, scale_block)
            prediction: Prediction = self._network(images.unsqueeze(0), recall, self._grid)
            geometry = self._describe(prediction, clip.timestamps_s)
            kept = keep is Keep.YES or (keep is Keep.DEFERRED and self._judge(geometry))
            if kept:
                transaction.commit()
        if kept:
            is_scale = not self._scale_block
            self._last_kept = KeptCamera(geometry.frame_index[-1], is_scale, geometry.pose_encoding[-1])
        self._waiting = _Waiting()
        self._num_answered += len(images)
        self._scale_block = scale_block
        return geometry if kept else replace(geometry, kind=(FrameKind.PASSING,))

    def _precision(self) -> torch.autocast:
        """Products in the compute type; norms, residuals, phases and heads stay float32."""
        halved = self._compute_dtype != torch.float32
        dtype = self._compute_dtype if halved else None
        return torch.autocast(self._device.type, dtype=dtype, enabled=halved, cache_enabled=False)

    def _judge(self, geometry: Geometry) -> bool:
        assert self._last_kept is not None
        return self._keyframes.after(geometry, self._last_kept)

    def _describe(self, prediction: Prediction, timestamps_s: tuple[float, ...]) -> Geometry:
        """The frames of a clip, taken as kept."""
        num_frames = len(timestamps_s)
        return describe(
            prediction,
            self._model.config.camera,
            frame_index=range(self._num_answered, self._num_answered + num_frames),
            timestamps_s=timestamps_s,
            kinds=(FrameKind.KEYFRAME if self._scale_block else FrameKind.SCALE,) * num_frames,
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
        )

    def check(self, frame: Frame) -> None:
        """Refuse a frame this session cannot take, in one sentence."""
        check_frame(frame, self._plan.size)
