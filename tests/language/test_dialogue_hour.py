"""An hour of video at two frames a second, and ten thousand looks, under a fixed budget; figures are printed."""

import gc
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import jaxtyping
import pytest
import torch
from hearing import limit_positions
from selected import rest_by_hand

from longtake.language.load import LanguageModel, load_language
from longtake.language.sampling import TextSampling
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.thinned import Thinned
from longtake.memory.policy import SegmentPolicy
from longtake.pipeline.writer_process import resident_bytes
from longtake.runtime.answers import Answer, Ending
from longtake.runtime.dialogue import DialogueSession

pytestmark = pytest.mark.extra

BUDGET = 1_000_000
FPS = 2.0
PALETTE = 48
SLACK_BYTES = 8_000_000
"""What resident memory may vary by: the allocator's, not the session's."""
QUESTION = "Was ist auf dem Tisch, 桌子上有什么 👩‍🚀?"
SAMPLINGS = [
    TextSampling(max_new_tokens=24),
    TextSampling(max_new_tokens=24, temperature=1.0),
    TextSampling(max_new_tokens=24, temperature=1.5, top_p=0.8),
    TextSampling(max_new_tokens=24, temperature=2.0, stop=tuple("abcdefghijklmnopqrstuvwxyz")),
    TextSampling(max_new_tokens=24, temperature=0.7, top_p=0.95, top_k=40),
]


@dataclass(slots=True)
class Visibility:
    """What was noted while a session watched."""

    resident: dict[int, int] = field(default_factory=dict)
    """Bytes by minute, every ten."""
    most_position: int = 0
    most_live_bytes: int = 0
    grid_ms: list[float] = field(default_factory=list)
    """The processor's time of every call that took in a grid or more, for each of them."""
    answers: list[Answer] = field(default_factory=list)


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """Shapes and types are checked on the same way by shorter tests; here that would take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def language(tiny_folder: Path) -> LanguageModel:
    """With a token for every byte: most of what a random network says is no text."""
    (tiny_folder / "preprocessor_config.json").write_text(json.dumps({"min_pixels": 3136, "max_pixels": 12_845_056}))
    return load_language(tiny_folder)


@pytest.fixture
def shallow_language(tiny_folder: Path, language: LanguageModel) -> LanguageModel:
    """The same with its first layers alone, as ten thousand looks take their time."""
    path = tiny_folder / "config.json"
    stated = json.loads(path.read_text())
    stated["text_config"] |= {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    stated["vision_config"] |= {"depth": 1, "fullatt_block_indexes": [0]}
    path.write_text(json.dumps(stated))
    return load_language(tiny_folder)


def chunks(num_frames: int, sizes: list[int]) -> Iterator[range]:
    start, turn = 0, 0
    while start < num_frames:
        size = sizes[turn % len(sizes)]
        yield range(start, min(start + size, num_frames))
        start, turn = start + size, turn + 1


def watch(
    session: DialogueSession, language: LanguageModel, *, num_frames: int, sizes: list[int], ask_every_s: float
) -> Visibility:
    """Frames in calls of these sizes, a question every so often; what must always hold is checked after each call."""
    chance = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (PALETTE, 3, 56, 56), dtype=torch.uint8, generator=chance)
    noted, declared, next_question_s = Visibility(), session.info.num_bytes, ask_every_s
    for chunk in chunks(num_frames, sizes):
        num_grids = chunk.stop // 2 - chunk.start // 2
        started = time.process_time()
        session.see(pictures[[index % PALETTE for index in chunk]], [index / FPS for index in chunk])
        if num_grids:
            noted.grid_ms.append((time.process_time() - started) * 1e3 / num_grids)
        info = session.info
        assert info.num_bytes == declared <= BUDGET
        noted.most_live_bytes = max(noted.most_live_bytes, info.live_bytes)
        noted.most_position = max(noted.most_position, info.next_position)
        now_s = chunk.stop / FPS
        if now_s >= next_question_s:
            next_question_s += ask_every_s
            noted.answers.append(asked(session, language, len(noted.answers)))
        if now_s // 600 * 10 not in noted.resident:
            gc.collect()
            noted.resident[int(now_s // 600) * 10] = resident_bytes()
    assert session.info.num_frames == num_frames
    return noted


def asked(session: DialogueSession, language: LanguageModel, number: int) -> Answer:
    """The answer to the next question; it is text, and ends as answers may."""
    sampling = replace(SAMPLINGS[number % len(SAMPLINGS)], seed=number)
    answer = session.ask(QUESTION, sampling)
    whole = language.required_tokenizer.decode(answer.ids)
    assert answer.text.encode("utf-8").decode("utf-8") == answer.text
    assert whole.startswith(answer.text) if sampling.stop else whole == answer.text
    assert not any(name in answer.text for name in ("<|", "|>"))
    assert not set(answer.ids) & set(language.suppressed_ids)
    if answer.ending is Ending.LENGTH:
        assert len(answer.ids) == sampling.max_new_tokens
    else:
        assert answer.ids[-1] in language.eos_ids or whole[len(answer.text) :].startswith(sampling.stop)
    return answer


def tell(name: str, noted: Visibility, session: DialogueSession) -> None:
    info, last = session.info, max(noted.resident)
    resident = {minute: round(noted.resident[minute] / 1e6, 1) for minute in (10, 30, last) if minute in noted.resident}
    full = noted.grid_ms[len(noted.grid_ms) // 10 : len(noted.grid_ms) // 5]
    early_ms, late_ms = statistics.median(full), statistics.median(noted.grid_ms[-len(full) :])
    print(
        f"\n{name}: {info.num_frames} frames; {info.num_bytes} bytes, at most {noted.most_live_bytes} in use; resident "
        f"MB by minute {resident}; position at most {noted.most_position}; {info.num_forgotten} grids left; "
        f"{len(noted.answers)} answers, {sum(answer.ending is Ending.STOP for answer in noted.answers)} ended by stop; "
        f"{early_ms:.2f} ms a grid early, {late_ms:.2f} late ({late_ms / early_ms:.2f} times)"
    )


def grown(noted: Visibility, start: int) -> int:
    """By how much the process became larger from one minute to the last."""
    return max(noted.resident[minute] for minute in noted.resident if minute >= start) - noted.resident[start]


@pytest.mark.parametrize(
    "rule", rest_by_hand([Window.for_dialogue(), Thinned(recent=16)], keep=1), ids=["recent", "thinned"]
)
def test_hour_of_video_takes_no_more_than_its_first_minutes(rule: SegmentPolicy, language: LanguageModel) -> None:
    session = DialogueSession(language, budget_bytes=BUDGET, retaining=rule, answer_tokens=200)
    noted = watch(session, language, num_frames=7200, sizes=[8, 7, 16, 1, 12, 2, 9, 5], ask_every_s=150.0)
    tell(type(rule).__name__, noted, session)
    assert noted.most_live_bytes <= session.info.num_bytes
    assert grown(noted, 10) < SLACK_BYTES
    assert FPS * 3600 < noted.most_position < 100 + FPS * 3600
    assert session.info.num_forgotten > 3300
    assert {answer.ending for answer in noted.answers} == {Ending.STOP, Ending.LENGTH}
    assert len(noted.answers) == 24
    session.close()


@pytest.mark.by_hand
def test_ten_thousand_looks_stay_within_memory_and_range(shallow_language: LanguageModel) -> None:
    """With a range that is reached every few minutes, so that the clip is moved back again and again."""
    session = DialogueSession(
        shallow_language, budget_bytes=BUDGET, answer_tokens=200, retaining=Window(anchors=0, window=16)
    )
    limit_positions(session, 500)
    noted = watch(session, shallow_language, num_frames=20_000, sizes=[2], ask_every_s=500.0)
    tell("10,000 looks", noted, session)
    assert noted.most_position <= 500 + 3
    assert grown(noted, 10) < SLACK_BYTES
    assert session.info.num_forgotten == 10_000 - 17
    assert len(noted.answers) == 20
    session.close()
