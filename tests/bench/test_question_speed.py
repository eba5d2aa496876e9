"""What questions cost is told with the contract under which it was measured."""

from dataclasses import asdict

import pytest
import torch

from longtake.attention.backend import SdpaBackend
from longtake.bench.question_speed import SMALL, measure_questions, random_language
from longtake.language.sampling import TextSampling
from longtake.runtime.answers import Ending
from longtake.runtime.dialogue import DialogueSession

CPU, SIZE = torch.device("cpu"), (56, 56)


def test_figures_say_what_they_were_measured_under() -> None:
    ticks: list[int] = []
    figures = measure_questions(
        text=SMALL,
        size=SIZE,
        num_tokens=100,
        answer_tokens=3,
        device=CPU,
        dtype=torch.float32,
        backend=SdpaBackend(),
        progress=ticks.append,
    )
    num_grids = 25  # of four tokens each
    assert ticks == [1] * num_grids
    assert num_grids * 4 <= figures.remembered_tokens <= num_grids * 4 + 20
    assert (figures.height, figures.width, figures.answer_tokens) == (*SIZE, 3)
    assert (figures.model, figures.dtype, figures.backend) == ("a small network", "float32", "sdpa")
    assert figures.why_portable == "recording needs an NVIDIA GPU"
    assert figures.device.startswith("CPU")
    assert figures.torch == torch.__version__
    times = asdict(figures)
    assert all(times[name] > 0 for name in ("first_see_s", "see_ms", "first_text_ms", "token_ms", "tokens_per_s"))
    assert figures.together_ratio == pytest.approx(figures.together_tokens_per_s / figures.tokens_per_s)
    assert figures.peak_allocated_bytes == 0


def test_the_network_is_drawn_the_same_each_time_and_never_ends_an_answer() -> None:
    answers = []
    for _ in range(2):
        language = random_language(SMALL, CPU, torch.float32)
        with DialogueSession(language, budget_bytes=1_000_000, answer_tokens=200, system="w1") as session:
            answers.append(session.ask("w500 w501", TextSampling(max_new_tokens=20)))
    assert answers[0].ids == answers[1].ids
    assert len(answers[0].ids) == 20
    assert answers[0].ending is Ending.LENGTH
    assert torch.get_default_dtype() == torch.float32
