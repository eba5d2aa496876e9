"""How much of a video is done while it runs."""

from longtake.batch.job import Failed, Finished, Stopped, Watched
from longtake.batch.video_share import VideoShare


def watched(name: str, num_frames: int, num_before: int = 0, num_in_all: int | None = 100) -> Watched:
    return Watched(name=name, num_frames=num_frames, num_before=num_before, num_in_all=num_in_all)


def test_what_was_done_before_counts_but_not_as_done_here() -> None:
    share = VideoShare(["walk"])
    assert (share.done, share.here) == (0.0, 0.0)
    share.hear(watched("walk", 10, num_before=60))
    assert (share.done, share.here) == (0.7, 0.1)
    share.hear(Finished(name="walk", num_frames=40, summary={}))
    assert share.done == 1.0
    assert share.here == 0.1 + (1.0 - 0.7)


def test_spans_count_as_parts_and_their_joining_as_none() -> None:
    share = VideoShare(["span-1", "span-2", "span-3", "span-4"], done=["span-2"])
    assert (share.done, share.here) == (0.25, 0.0)
    share.hear(watched("span-1", 50))
    share.hear(watched("span-3", 150))  # a video may be longer than it says
    assert (share.done, share.here) == (0.625, 0.375)
    share.hear(Finished(name="walk", num_frames=0, summary={}))
    assert share.done == 0.625


def test_of_a_length_that_nobody_knows_nothing_is_said() -> None:
    share = VideoShare(["camera"])
    for num_in_all in (None, 0):
        share.hear(watched("camera", 50, num_in_all=num_in_all))
        assert (share.done, share.here) == (0.0, 0.0)


def test_what_failed_or_was_stopped_is_told_anew_by_the_next_worker() -> None:
    share = VideoShare(["walk"])
    for end in (Failed(name="walk", problem="It died."), Stopped(name="walk")):
        share.hear(watched("walk", 50))
        share.hear(end)
        assert (share.done, share.here) == (0.0, 0.0)
