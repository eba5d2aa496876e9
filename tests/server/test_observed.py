from longtake.server.events import SessionEvent
from longtake.server.observed import Durations, Observed


def test_frames_are_counted_by_how_they_ended_and_one_that_came_twice_once() -> None:
    observed = Observed()
    times = {"wait_s": 0.02, "step_s": 0.2, "overhead_s": 0.0005}
    for type, fields in (
        ("input_frame.ack", {"sequence": 0, **times}),
        ("input_frame.ack", {"sequence": 0, "duplicate": True}),
        ("input_frame.dropped", {"sequence": 1}),
        ("input_frame.unreadable", {"sequence": 2}),
        ("error", {"sequence": 3, "code": "sequence_gap", "message": "x"}),
        ("error", {"code": "internal", "message": "x"}),
        ("session.saved", {"next_sequence": 1}),
    ):
        observed.hear("ab", SessionEvent(1, type, fields))
    figures = observed.read()
    assert figures.frames == {"taken": 1, "dropped": 1, "unreadable": 1, "refused": 1}
    assert figures.events["input_frame.ack"] == 2
    assert {part: durations.total_s for part, durations in figures.frame_s.items()} == {
        "wait": 0.02,
        "step": 0.2,
        "overhead": 0.0005,
    }


def test_the_first_word_is_timed_from_the_question_of_its_session() -> None:
    now_s = 0.0
    observed = Observed(lambda: now_s)
    for session in ("a", "b"):
        observed.hear(session, SessionEvent(1, "response.created", {"response": "q", "question": "?"}))
        now_s += 1.0
    for session, type in (("a", "delta"), ("a", "delta"), ("a", "done"), ("b", "done")):
        observed.hear(session, SessionEvent(2, f"response.output_text.{type}", {"response": "q", "text": "x"}))
    observed.hear("a", SessionEvent(3, "response.created", {"response": "r", "question": "?"}))
    observed.hear("a", SessionEvent(4, "response.cancelled", {"response": "r"}))
    figures = observed.read()
    assert figures.questions == {"answered": 2, "cancelled": 1}
    assert figures.first_token_s.total_s == 3.0
    assert sum(figures.first_token_s.counts) == 2
    assert not observed._asked_s


def test_durations_count_up_to_their_bounds() -> None:
    durations = Durations(bounds_s=(1.0, 2.0), counts=[0, 0, 0])
    for seconds in (0.5, 1.0, 1.5, 3.0):
        durations.add(seconds)
    assert (durations.counts, durations.total_s) == ([2, 1, 1], 6.0)
