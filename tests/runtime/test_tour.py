"""A procedural world streams straight into a session."""

from itertools import islice

from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.world.tour import Tour


def test_a_tour_streams_into_a_session(tiny_model: GeometryModel) -> None:
    tour = Tour(seed=3, width=56, height=42)
    plan = MemoryPlan(
        config=tiny_model.config,
        size=(tour.height, tour.width),
        retention=ContextRetention(anchors=2, window=2, history=8),
        num_scale_frames=2,
    )
    with SequenceSession(tiny_model, plan, keyframes=EveryNth(2)) as session:
        times = [
            time for view in islice(tour.views(), 6) for time in session.step(view.image, view.timestamp_s).timestamp_s
        ]
    assert times == [index / 10 for index in range(6)]
