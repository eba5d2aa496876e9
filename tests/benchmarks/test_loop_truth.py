"""Loops that are believed are judged by the truth between their two cameras, in metres whatever the unit."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from rendered_views import filmed, key_view

from benchmarks.loop_truth import LoopWatch, WatchedVerifier, is_wrong
from benchmarks.shared_views import TruePlace, judge_place
from longtake.places.graph import PlaceGraph
from longtake.places.index import Candidate, IndexRule, PlaceIndex
from longtake.places.loop_card import LoopCard
from longtake.places.loop_rule import LoopRule
from longtake.places.loops import Spread
from longtake.places.nodes import Nodes
from longtake.places.walk import Walk
from longtake.spatial.similarity import Similarity

CARD = LoopCard(
    least_agreeing=10,
    least_agreeing_share=0.1,
    least_depth_agreement=0.5,
    least_colour_agreement=0.5,
    least_texture_agreement=0.0,
    noise=Spread(translation=0.01, rotation_rad=0.01, log_scale=0.01),
)
CPU = torch.device("cpu")
OLD, NEW, ELSEWHERE = (filmed(18, frame) for frame in (60, 64, 150))


def watched() -> LoopWatch:
    watch = LoopWatch(WatchedVerifier(CARD), similarities={(60, 64): 0.7})
    watch.places |= {view.index: TruePlace.of(view) for view in (OLD, NEW, ELSEWHERE)}
    return watch


def test_a_true_loop_is_right_in_any_unit() -> None:
    watch = watched()
    assert watch.verifier.verify(key_view(OLD), key_view(NEW, metres=2.5)).is_accepted
    watch.note_loops(1)
    (loop,) = watch.loops()
    assert (loop.old_frame, loop.new_frame, loop.similarity) == (60, 64, 0.7)
    assert loop.shared > 0.5
    assert loop.shift_m == pytest.approx(0, abs=0.05)
    assert loop.turn_deg == pytest.approx(0, abs=1.0)
    assert not is_wrong(asdict(loop))
    assert is_wrong(asdict(replace(loop, shift_m=0.31)))
    assert is_wrong(asdict(replace(loop, turn_deg=5.1)))


def test_what_is_doubted_is_noted_without_an_error() -> None:
    watch = watched()
    watch.verifier.verify(key_view(OLD), key_view(ELSEWHERE))
    watch.note_loops(0)
    (loop,) = watch.loops()
    assert not loop.is_accepted
    assert loop.shared < 0.1
    assert loop.shift_m is None
    assert not is_wrong(asdict(loop))


def test_what_points_speak_for_and_the_walk_refuses_is_no_loop() -> None:
    watch = watched()
    for num_loops in (1, 1):
        assert watch.verifier.verify(key_view(OLD), key_view(NEW)).is_accepted
        watch.note_loops(num_loops)
    believed, refused = watch.loops()
    assert believed.is_accepted
    assert not refused.is_accepted
    assert refused.turn_deg is None


def test_a_place_is_known_where_an_old_one_shares_its_view() -> None:
    places = {view.index: TruePlace.of(view) for view in (OLD, NEW)}
    found = Candidate(
        frame=64, window=0, old_frame=60, old_window=0, similarity=0.7, own_similarity=0.7, is_backwards=False
    )
    judged = judge_place([found], places, IndexRule(gap_frames=4))
    assert judged.is_right
    assert judged.is_known
    too_near = judge_place([found], places, IndexRule(gap_frames=100))
    assert not too_near.is_right
    assert not too_near.is_known


def test_places_that_come_several_in_one_step_are_all_noted() -> None:
    rule, watch = IndexRule(every_frames=1, gap_frames=4), LoopWatch(WatchedVerifier(CARD))
    index = PlaceIndex.empty(4, rule)
    for look, frame in zip(np.eye(4, dtype=np.float32)[:3], (60, 64, 150), strict=True):
        index = index.with_keyframe(look, frame=frame, window=0, timestamp_s=frame / 10)
    before = replace(
        Walk.begun(LoopRule(index=rule)), graph=PlaceGraph.of_first(Similarity.identity(CPU)), nodes=Nodes(starts=(0,))
    )
    for view in (OLD, NEW):
        watch.see(view, before)
    assert not watch.places
    watch.see(ELSEWHERE, replace(before, index=index))
    assert sorted(watch.places) == [60, 64, 150]
