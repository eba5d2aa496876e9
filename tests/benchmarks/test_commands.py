"""`python -m benchmarks` as a developer meets it, in this process."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import benchmarks
from longtake.errors import SettingError

pytestmark = pytest.mark.extra


def test_ask_compares_a_session_with_encoding_anew() -> None:
    done = CliRunner().invoke(benchmarks, ["ask", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["ask"]["agrees"] is True
    assert figures["ask"]["num_chunks"] == 8
    assert [fork["num_tokens"] for fork in figures["forks"]] == [1_000, 10_000, 100_000]
    assert len({fork["fork_bytes"] for fork in figures["forks"]}) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["attention-mass", "--tokens", "20", "--cached", "2", "--device", "cpu"], ("overhead", "statistics_ms")),
        (
            ["world", "--sizes", "42x28", "--houses", "1", "--frames", "1", "--device", "cpu"],
            ("42x28", "houses/s built"),
        ),
        (["precision", "--at", "10", "--device", "cpu"], ("10, sdpa", "plain: encoder")),
        (["soak", "--frames", "60", "--stretch", "20"], ("memory of", "live tensors")),
        (["graph-speed", "--frames", "480", "--loops", "2,9", "--places", "32"], ("a step, ms", "a query, ms")),
        (
            ["second-walks", "--worlds", "2", "--frames", "16", "--second-frames", "8", "--strange", "1"],
            ("known at", "0 of 2 claimed in a strange house"),
        ),
        (["tracking", "--worlds", "1", "--frames", "60", "--films", "dark"], ("1 of 1", "sub-maps, worlds")),
        (["loop-walks", "--worlds", "1", "--frames", "64"], ("F1 without", "without a return: 1 worlds", "precision")),
        (["loop-cost", "--worlds", "1", "--frames", "64"], ("ms without", "solver: begin, ms")),
        (["loop-bytes", "--frames", "200"], ("graph, kB", "slowest wait for the solver, ms")),
        (["place-recall", "--worlds", "1", "--frames", "240"], ("seen before", "precision 0.99")),
    ],
)
def test_command_prints_its_figures(arguments: list[str], words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(benchmarks, arguments)
    assert all(word in done.stdout for word in words), done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["soak", "--frames", "10"], "two stretches"),
        (["precision", "--at", "ten"], "Expected frame numbers such as 10,72,100"),
        (["graph-speed", "--loops", "some"], "Expected numbers of loops such as 32,64, but got 'some'"),
        (["tracking", "--films", "noir"], "Expected films among walk, cut, kidnapped, dark, still, but got ['noir']"),
        (["pipeline", "--network", "huge"], "Expected --network as tiny, micro, but got 'huge'"),
    ],
)
def test_option_without_meaning_is_refused(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(benchmarks, arguments)
    assert isinstance(done.exception, SettingError)
    assert words in str(done.exception)
    assert CliRunner().invoke(benchmarks, ["ask", "--chunks", "0"]).exit_code == 2
