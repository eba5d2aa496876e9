"""One registry of policies: names, records new and old, and policies of one's own."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from longtake.errors import SavedSessionError, SettingError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.budgeted import KeyDiversity, Managed
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Trail, Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import Keep, Policy, SegmentPolicy, StreamPolicy
from longtake.memory.registry import (
    POLICIES,
    policy_record,
    segment_policy_named,
    segment_policy_of,
    stream_policy_named,
    stream_policy_of,
)
from longtake.memory.tokens import StreamLayout

STREAM_POLICIES = [
    *(kind() for kind in POLICIES.values() if issubclass(kind, StreamPolicy) and kind is not Layerwise),
    Layerwise(num_frames=7),
    ContextRetention(history=None),
    ContextRetention(trail=3),
    Window(window=None),
    Managed(num_tokens=9, decay=0.5),
]
SEGMENT_POLICIES = [
    *(kind.for_dialogue() for kind in POLICIES.values() if issubclass(kind, SegmentPolicy)),
    Window(anchors=2, window=3),
    Thinned(recent=3),
    Novel(recent=1),
]
OWN = """
from dataclasses import dataclass

from longtake.memory.policy import LockstepPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepEveryTenth(LockstepPolicy):
    every: int = 10

    def stays(self, tokens, *, num_kept):
        return (tokens.frame % self.every == 0) | (tokens.frame >= num_kept - 1)

    def most_tokens(self, tokens_per_frame, *, num_kept):
        return (num_kept // self.every + 2) * tokens_per_frame

    @property
    def full_after(self):
        return None


NUMBER = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a policy, findable and not yet imported."""
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_policies", raising=False)
    return "own_policies"


def through_json(policy: Policy) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(json.dumps(policy_record(policy)))
    return record


@pytest.mark.parametrize("policy", STREAM_POLICIES, ids=repr)
def test_policies_of_a_map_come_back_from_their_record(policy: StreamPolicy) -> None:
    assert stream_policy_of(through_json(policy)) == policy


@pytest.mark.parametrize("policy", SEGMENT_POLICIES, ids=repr)
def test_policies_of_a_dialogue_come_back_from_their_record(policy: SegmentPolicy) -> None:
    assert segment_policy_of(through_json(policy)) == policy


@pytest.mark.parametrize(
    ("record", "policy"),
    [
        (
            {"anchors": 2, "window": 3, "trail": "camera", "history": 9},
            ContextRetention(anchors=2, window=3, trail=Trail.CAMERA, history=9),
        ),
        (
            {"kind": "context", "anchors": 8, "window": 64, "trail": "special", "history": 4096},
            ContextRetention(),
        ),
        ({"kind": "keep-all"}, KeepAll()),
        ({"kind": "window", "anchors": 1, "window": 5}, Window()),
        (
            {
                "kind": "budgeted",
                "choice": "attention",
                "num_tokens": 77,
                "num_frames": 16,
                "anchors": 1,
                "recent": 1,
                "special_frames": 64,
                "camera_frames": 1024,
                "decay": 0.9,
            },
            Managed(num_tokens=77, decay=0.9),
        ),
        (
            {
                "kind": "budgeted",
                "choice": "keys",
                "num_tokens": None,
                "num_frames": 4,
                "anchors": 2,
                "recent": 1,
                "special_frames": 64,
                "camera_frames": 1024,
                "decay": 1.0,
            },
            KeyDiversity(num_frames=4, anchors=2),
        ),
        (
            {"kind": "ratio", "drop": 0.2, "anchors": 1, "special_frames": 64, "camera_frames": 9},
            Ratio(drop=0.2, camera_frames=9),
        ),
        (
            {"kind": "farthest-frames", "num_frames": 3, "anchors": 1, "recent": 1, "camera_frames": 5},
            FarthestFrames(num_frames=3, camera_frames=5),
        ),
        (
            {"kind": "layerwise", "num_frames": 40, "budget_ratio": 0.1, "temperature": 0.5, "strict": False},
            Layerwise(num_frames=40, budget_ratio=0.1, strict=False),
        ),
    ],
    ids=lambda value: value.get("kind", "none") if isinstance(value, dict) else "",
)
def test_records_of_maps_by_earlier_versions_are_read(record: dict[str, Any], policy: StreamPolicy) -> None:
    assert stream_policy_of(record) == policy


@pytest.mark.parametrize(
    ("record", "policy"),
    [
        ({"name": "keep-until-full"}, KeepAll()),
        ({"name": "recent-frames", "most": None}, Window.for_dialogue()),
        ({"name": "recent-frames", "most": 4}, Window(anchors=0, window=4)),
        ({"name": "thinned-past", "recent": 3, "by_novelty": False}, Thinned(recent=3)),
        ({"name": "thinned-past", "recent": 8, "by_novelty": True}, Novel()),
    ],
)
def test_records_of_dialogues_by_earlier_versions_are_read(record: dict[str, Any], policy: SegmentPolicy) -> None:
    assert segment_policy_of(record) == policy


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"kind": "psychic"}, "has a memory policy 'psychic', unknown to this longtake; update it"),
        ({"kind": 7}, "has no name but 7"),
        ({"kind": "window", "anchors": -1}, "'window' does not fit this longtake"),
        ({"kind": "window", "anchors": "many"}, "'window' does not fit this longtake"),
        ({"kind": "window", "height": 3}, "'window' does not fit this longtake"),
        ({"kind": "context", "trail": "long"}, "'context' does not fit this longtake"),
        ({"kind": "layerwise"}, "'layerwise' does not fit this longtake"),
        ({"kind": "thinned"}, "'thinned', which is for another kind of session"),
    ],
)
def test_records_that_do_not_fit_are_refused_in_a_sentence(record: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SavedSessionError, match=sentence):
        stream_policy_of(record)


def test_policies_have_names() -> None:
    assert stream_policy_named("managed") == Managed()
    assert stream_policy_named("window") == Window(anchors=1, window=5)
    assert stream_policy_named("layerwise:300") == Layerwise(num_frames=300)
    names = ("keep-all", "window", "thinned", "novel")
    policies = [KeepAll(), Window(anchors=0, window=None), Thinned(recent=8), Novel(recent=8)]
    assert [segment_policy_named(name) for name in names] == policies


@pytest.mark.parametrize("name", ["lots", "layerwise", "layerwise:", "layerwise:0", "window:3", "thinned", ""])
def test_policy_that_a_map_does_not_have_is_refused_with_the_choices(name: str) -> None:
    sentence = (
        f"There is no memory policy '{name}' for a map; choose one of context, keep-all, window, managed, ratio, "
        "key-diversity, farthest-frames, layerwise:N for a video of N frames, or your own as module:Class."
    )
    with pytest.raises(SettingError) as refused:
        stream_policy_named(name)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("digits", [10, 400])
def test_video_longer_than_any_is_refused_before_it_is_planned_for(digits: int) -> None:
    with pytest.raises(SettingError, match=r"no memory policy|1 to 1000000000"):
        stream_policy_named(f"layerwise:{'9' * digits}")


@pytest.mark.parametrize("name", ["all", "managed", "layerwise:9"])
def test_policy_that_a_dialogue_does_not_have_is_refused_with_the_choices(name: str) -> None:
    sentence = f"no memory policy '{name}' for a dialogue; choose one of keep-all, window, thinned, novel, or your own"
    with pytest.raises(SettingError, match=sentence):
        segment_policy_named(name)


def test_policy_of_ones_own_is_named_by_module_and_class(own_module: str) -> None:
    policy = stream_policy_named(f"{own_module}:KeepEveryTenth")
    assert type(policy).__name__ == "KeepEveryTenth"
    record = through_json(policy)
    assert record == {"kind": f"{own_module}:KeepEveryTenth", "every": 10}
    assert stream_policy_of(record | {"every": 4}).every == 4  # type: ignore[attr-defined]
    with pytest.raises(SettingError, match="for a dialogue; choose one of keep-all"):
        segment_policy_named(f"{own_module}:KeepEveryTenth")


def test_policy_of_ones_own_remembers_as_it_says(own_module: str) -> None:
    policy = stream_policy_named(f"{own_module}:KeepEveryTenth")
    layout = StreamLayout(num_layers=1, num_heads=1, head_dim=2, tokens_per_frame=2)
    streams = {"trunk": (layout, policy), "camera": (layout, policy.camera())}
    memory = Memory(MemoryRequirements(streams=streams, first_clip=1).plan(1000))
    for _ in range(25):
        with memory.begin(1, Keep.YES) as transaction:
            for stream in streams:
                transaction.write(stream, 0, torch.zeros(2, 1, 2), torch.zeros(2, 1, 2))
            transaction.commit()
    assert sorted(memory.tokens("trunk").frame.tolist()) == [0, 0, 10, 10, 20, 20, 24, 24]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "no_such_package.policies:Keep",
            r"cannot be imported \(ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("own_policies:Missing", "to be a memory policy, .* but the module has no such name"),
        ("own_policies:NUMBER", "to be a memory policy, .* but it is not"),
        ("own_policies:dataclass", "to be a memory policy, .* but it is not"),
        (":Keep", "cannot be imported"),
    ],
)
def test_own_policy_that_is_none_is_refused_in_a_sentence(own_module: str, name: str, sentence: str) -> None:
    assert own_module == "own_policies"
    with pytest.raises(SettingError, match=sentence):
        stream_policy_named(name)


def test_file_that_names_a_module_imports_nothing(own_module: str) -> None:
    with pytest.raises(SavedSessionError, match=f"of your own, .* import {own_module} before you resume it"):
        stream_policy_of({"kind": f"{own_module}:KeepEveryTenth", "every": 10})
    assert own_module not in sys.modules
    with pytest.raises(SavedSessionError, match="of your own, 'json:JSONDecoder'"):
        stream_policy_of({"kind": "json:JSONDecoder"})
