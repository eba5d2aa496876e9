"""Results on the wire: geometry to the bit as safetensors, answers as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from longtake.api.live_session import LiveAnswer, Moment
from longtake.errors import InputError
from longtake.records import record_from
from longtake.runtime.answers import Answer, Ending, Evidence, Refusal, Timing
from longtake.types import FrameKind, Geometry, Moved, MovedSpan, Tracking

_TUPLES = ("frame_index", "timestamp_s", "kind", "window", "provisional")
_MOVED = "moved."


def geometry_bytes(geometry: Geometry) -> bytes:
    """All of it; what earlier frames became has names that begin with `moved.`"""
    record: dict[str, Any] = _plain(geometry)
    tensors = _tensors(geometry, "")
    if geometry.moved is not None:
        moved = geometry.moved
        tensors |= _tensors(moved.geometry, _MOVED)
        for number, span in enumerate(moved.spans):
            tensors[f"{_MOVED}span.{number}"] = span.now_from_before
        spans = [[span.first_frame, span.last_frame] for span in moved.spans]
        record["moved"] = {"version": moved.version, "spans": spans, "geometry": _plain(moved.geometry)}
    whole = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    return save(whole, {"geometry": json.dumps(record)})


def geometry_of(content: bytes) -> Geometry:
    """What `geometry_bytes` wrote."""
    try:
        tensors = load(content)
        record = _record_of(content)
        geometry = _geometry(record, tensors, "")
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(
            "Expected geometry from the server, but what came cannot be read; is it this version?"
        ) from error
    if "moved" not in record:
        return geometry
    moved = record["moved"]
    spans = tuple(
        MovedSpan(first_frame=first, last_frame=last, now_from_before=tensors[f"{_MOVED}span.{number}"])
        for number, (first, last) in enumerate(moved["spans"])
    )
    earlier = _geometry(moved["geometry"], tensors, _MOVED)
    columns = {field.name: getattr(geometry, field.name) for field in fields(geometry)}
    return Geometry(**columns | {"moved": Moved(version=moved["version"], spans=spans, geometry=earlier)})


def answer_record(answer: Answer | LiveAnswer) -> dict[str, Any]:
    """An answer with its evidence, as plain values for JSON."""
    plain = answer.answer if isinstance(answer, LiveAnswer) else answer
    moments: Sequence[Moment | Evidence] = answer.evidence
    return {
        "text": plain.text,
        "ids": list(plain.ids),
        "prompt_tokens": plain.num_prompt_tokens,
        "ending": plain.ending.value,
        "refusal": None if plain.refusal is None else {"why": plain.refusal.why, "known": plain.refusal.known},
        "seen_until_s": plain.seen_until_s,
        "evidence": [
            {
                "start_s": moment.start_s,
                "end_s": moment.end_s,
                "weight": moment.weight,
                "pose": _numbers(moment.world_from_camera) if isinstance(moment, Moment) else None,
            }
            for moment in moments
        ],
        "pose": _numbers(answer.world_from_camera) if isinstance(answer, LiveAnswer) else None,
        "timing": {
            "first_token_s": plain.timing.first_token_s,
            "total_s": plain.timing.total_s,
            "fork_s": plain.timing.fork_s,
            "prefill_s": plain.timing.prefill_s,
            "tokens_per_s": plain.timing.tokens_per_s,
        },
    }


def answer_of(record: Mapping[str, Any]) -> LiveAnswer:
    """The answer of what `answer_record` gave."""
    spans, refusal = record["evidence"], record.get("refusal")
    plain = Answer(
        text=record["text"],
        ids=tuple(record["ids"]),
        ending=Ending(record["ending"]),
        seen_until_s=record["seen_until_s"],
        evidence=tuple(Evidence(start_s=span["start_s"], end_s=span["end_s"], weight=span["weight"]) for span in spans),
        timing=Timing(**record["timing"]),
        refusal=None if refusal is None else Refusal(**refusal),
        num_prompt_tokens=record["prompt_tokens"],
    )
    moments = tuple(
        Moment(
            start_s=span["start_s"],
            end_s=span["end_s"],
            weight=span["weight"],
            world_from_camera=_pose(span["pose"]),
        )
        for span in spans
    )
    return LiveAnswer(text=plain.text, evidence=moments, world_from_camera=_pose(record["pose"]), answer=plain)


def pose_numbers(pose: Tensor) -> list[float]:
    """The 16 numbers of a matrix, row by row."""
    numbers: list[float] = pose.flatten().tolist()
    return numbers


def _numbers(pose: Tensor | None) -> list[float] | None:
    return None if pose is None else pose_numbers(pose)


def _pose(numbers: Sequence[float] | None) -> Tensor | None:
    return None if numbers is None else torch.tensor(numbers).reshape(4, 4)


def _plain(geometry: Geometry) -> dict[str, Any]:
    return {
        "frame_index": geometry.frame_index,
        "timestamp_s": geometry.timestamp_s,
        "kind": [kind.value for kind in geometry.kind],
        "window": geometry.window,
        "provisional": geometry.provisional,
        "tracking": None if geometry.tracking is None else [one.to_record() for one in geometry.tracking],
    }


def _tensors(geometry: Geometry, prefix: str) -> dict[str, Tensor]:
    values = {field.name: getattr(geometry, field.name) for field in fields(geometry)}
    return {prefix + name: value for name, value in values.items() if isinstance(value, Tensor)}


def _geometry(record: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str) -> Geometry:
    names = {field.name for field in fields(Geometry)}
    found: dict[str, Any] = {
        name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)
    }
    plain: dict[str, Any] = {name: tuple(record[name]) for name in _TUPLES}
    plain["kind"] = tuple(map(FrameKind, plain["kind"]))
    tracking = record.get("tracking")  # saves of earlier versions have none
    plain["tracking"] = None if tracking is None else tuple(record_from(Tracking, one) for one in tracking)
    return Geometry(**plain | {name: value for name, value in found.items() if name in names})


def _record_of(content: bytes) -> dict[str, Any]:
    """The header of a safetensors file is JSON, after its length in eight bytes."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return dict(json.loads(header["__metadata__"]["geometry"]))
