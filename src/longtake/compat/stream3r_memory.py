"""What a STream3R stream remembers: a memory for each video of the batch, under the published rules.

As published a call sees all that is remembered, and only then is anything forgotten: such a clip is `Keep.DEFERRED`.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from longtake.attention.backend import SdpaBackend
from longtake.attention.recall import StreamRecall
from longtake.compat.lingbot_options import Precision
from longtake.compat.lingbot_sequence import Videos
from longtake.errors import InputError, SettingError
from longtake.geometry.config import TRUNK
from longtake.geometry.model import GeometryModel, Prediction
from longtake.memory.budget import require_room
from longtake.memory.change import change_together
from longtake.memory.memory import Memory
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import Keep, StreamPolicy
from longtake.memory.saved import Pieces
from longtake.memory.transaction import Transaction
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.steps import check_frame

Pair = tuple[Tensor, Tensor]
"""Keys and values."""

_FIRST_ROOM = 16
"""Frames that a stream of unknown length has room for at first."""


def published_rule(
    mode: str,
    *,
    num_frames: int | None,
    use_kv_compression: bool,
    eviction_ratio: float,
    importance_aggregation: str,
    use_layerwise_eviction: bool,
    budget_ratio: float,
    temp: float,
) -> StreamPolicy:
    """The rule that the published session's options describe."""
    if mode not in ("causal", "window"):
        raise SettingError(
            f"Expected the mode causal or window, but got '{mode}'; a stream cannot see what is still to come, so give "
            "whole clips to the model for other modes."
        )
    if num_frames is not None and num_frames < 1:
        raise SettingError(f"Expected num_frames of 1 at least, or None, but got {num_frames}.")
    evicts = use_layerwise_eviction or use_kv_compression
    if mode == "window":
        if evicts:
            raise SettingError("Expected eviction or a window, but got both; choose mode='causal' to evict.")
        return Window(anchors=1, window=5)
    if use_layerwise_eviction:
        if num_frames is None:
            raise SettingError("Layer-wise eviction divides a budget over the whole video; give its num_frames.")
        return Layerwise(num_frames=num_frames, budget_ratio=budget_ratio, temperature=temp, strict=False)
    if use_kv_compression:
        if importance_aggregation not in ("sum", "mean"):
            raise SettingError(
                f"Expected importance_aggregation sum or mean, which choose alike, but got '{importance_aggregation}'."
            )
        return Ratio(drop=eviction_ratio)
    return KeepAll()


class StreamMemories:
    """The videos of a batch, each with a memory of its own."""

    def __init__(self, network: GeometryModel, rule: StreamPolicy, first: Videos, num_frames: int | None) -> None:
        """Room for calls as large as the first; a stream that forgets nothing makes more whenever it must."""
        self._network = network
        self._device = network.camera_head.first_pose.device
        call, _, height, width = first.shape[1:]
        self._plan = MemoryPlan(
            config=network.config,
            size=(height, width),
            retention=rule,
            num_scale_frames=call,
            reserve_frames=call - 1,
            trunk_dtype=Precision.of(network).stored,
        )
        self._grid = network.grid(height, width)
        self._room = max(num_frames or _FIRST_ROOM, call)
        self._memories = self._open(len(first), self._room)

    @property
    def num_frames(self) -> int:
        """Frames of each video so far."""
        return self._memories[0].num_kept

    def check(self, images: Videos) -> None:
        """Refuse a call that cannot go on here, before anything has moved."""
        if len(images) != len(self._memories):
            raise InputError(
                f"Expected the {len(self._memories)} videos this stream began with, but got {len(images)}; call "
                "clear() to begin another."
            )
        for frame in images.flatten(0, 1):
            check_frame(frame, self._plan.size)
        rule, call = self._plan.retention, images.shape[1]
        if isinstance(rule, Layerwise) and self.num_frames + call > rule.num_frames:
            raise InputError(
                f"Expected {rule.num_frames} frames in all, as num_frames said, but these would make "
                f"{self.num_frames + call}; open a session with a larger num_frames."
            )
        if call > self._plan.num_scale_frames and not isinstance(rule, KeepAll):
            raise InputError(
                f"Expected no more than the {self._plan.num_scale_frames} frames of the first call, for which the "
                f"memory has room, but got {call}; give them in several calls, or the largest call first."
            )

    def step(self, pixels: Videos) -> list[Prediction]:
        """The next frames of every video, which see each other; all are remembered, or on an error none."""
        self._make_room(pixels.shape[1])
        with ExitStack() as stack:
            staged = (memory.begin(pixels.shape[1], Keep.DEFERRED) for memory in self._memories)
            transactions = [stack.enter_context(transaction) for transaction in staged]
            predictions = [self._predict(*pair) for pair in zip(transactions, pixels.split(1), strict=True)]
            change_together(*(transaction.commit_with for transaction in transactions))
        return predictions

    def tokens_per_layer(self) -> list[int]:
        """Tokens that each layer remembers, of the video that has most."""
        layers = range(self._network.config.trunk.depth)
        return [max(len(memory.tokens(TRUNK, layer)) for memory in self._memories) for layer in layers]

    def keys_and_values(self) -> list[list[Tensor | None]]:
        """Copies for each layer, `[batch, heads, tokens, head_dim]`; the order of tokens means nothing."""
        videos = [_keys_and_values(memory, TRUNK, self._device) for memory in self._memories]
        return [[*_side_by_side(layer), None] for layer in zip(*videos, strict=True)]

    def _predict(self, transaction: Transaction, video: Videos) -> Prediction:
        recall = StreamRecall(transaction, SdpaBackend(), num_scale_frames=1)
        prediction: Prediction = self._network(video, recall, self._grid)
        return prediction

    def _make_room(self, num_coming: int) -> None:
        """Move all that is remembered into larger memories, where nothing is ever forgotten and room runs out."""
        needed = self.num_frames + num_coming
        if not isinstance(self._plan.retention, KeepAll) or needed <= self._room:
            return
        room = max(2 * self._room, needed)
        larger = self._open(len(self._memories), room)
        for old, new in zip(self._memories, larger, strict=True):
            _move(old, new, self._device)
        self._memories, self._room = larger, room

    def _open(self, count: int, room: int) -> list[Memory]:
        requirements = self._plan.requirements
        streams = requirements.plan(requirements.num_bytes(room) if requirements.full_after is None else None)
        require_room(count * sum(stream.num_bytes for stream in streams.values()), self._device)
        return [Memory(streams, self._device) for _ in range(count)]


def _move(old: Memory, new: Memory, device: torch.device) -> None:
    """Let a new memory remember, as one clip, what another does that forgets nothing."""
    with new.begin(old.num_kept, Keep.YES) as transaction:
        for stream in old.plans:
            for layer, (keys, values) in enumerate(_keys_and_values(old, stream, device)):
                transaction.write(stream, layer, keys, values)
        transaction.commit()


def _keys_and_values(memory: Memory, stream: str, device: torch.device) -> list[Pair]:
    """Of each layer, `[tokens, heads, head_dim]`."""
    contents, layers = memory.contents(), range(memory.plans[stream].layout.num_layers)
    in_lockstep = f"{stream}.0.keys" in contents  # else each layer is saved by itself, as its own layer 0
    names = [f"{stream}.{layer}" if in_lockstep else f"{stream}.{layer}.0" for layer in layers]
    return [(_whole(contents[f"{name}.keys"], device), _whole(contents[f"{name}.values"], device)) for name in names]


def _whole(content: Pieces, device: torch.device) -> Tensor:
    """In place where it is one piece."""
    pieces = list(content.pieces)
    if not pieces:
        return torch.empty(content.shape, dtype=content.dtype, device=device)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _side_by_side(videos: Sequence[Pair]) -> list[Tensor]:
    counts = {len(keys) for keys, _ in videos}
    if len(counts) > 1:
        raise InputError(
            "The videos of this batch remember different numbers of tokens, which make no common tensor; stream them "
            "one by one, or count with get_cache_tokens_per_layer()."
        )
    return [torch.stack(half).transpose(1, 2) for half in zip(*videos, strict=True)]
