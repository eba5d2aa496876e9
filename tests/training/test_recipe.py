"""Recipes: rates over steps, stages in order, and files that cannot be followed."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import InputError, SettingError
from longtake.weights.presets import MICRO, TINY
from training.recipe import Recipe, Stage, read_recipe, read_vqa_recipe, shipped_recipe
from training.vqa_model import FRAME_SIZE


@pytest.fixture(scope="module")
def shipped() -> Recipe:
    return read_recipe(shipped_recipe("micro-map"))


def test_the_shipped_recipe_trains_from_short_clips_to_long_ones(shipped: Recipe) -> None:
    longest = [max(stage.clip_frames) for stage in shipped.stages]
    assert longest == sorted(longest)
    assert longest[-1] >= 48
    assert [MICRO.patches(*size) for size in shipped.film.sizes][:2] == [(7, 9), (6, 11)]
    assert max(shipped.judge.clip_frames) <= shipped.film.world_frames


def test_the_quick_recipe_is_of_a_few_steps() -> None:
    recipe = read_recipe(shipped_recipe("micro-map-quick"))
    assert recipe.num_steps < 20
    assert all(TINY.patches(*size) for size in recipe.film.sizes)


def test_the_rate_rises_stays_and_falls_to_nothing(shipped: Recipe) -> None:
    rates = [shipped.rate_at(step) for step in range(shipped.num_steps)]
    warm, cool = shipped.warmup_steps, shipped.num_steps - shipped.cooldown_steps
    assert rates[0] == pytest.approx(shipped.rate / warm)
    assert all(a < b for a, b in pairwise(rates[:warm]))
    assert set(rates[warm - 1 : cool + 1]) == {shipped.rate}
    assert all(a > b for a, b in pairwise(rates[cool:]))
    assert rates[-1] == pytest.approx(shipped.rate / shipped.cooldown_steps)
    assert shipped.rate_at(shipped.num_steps) == 0


def test_without_warm_up_and_cool_down_the_rate_is_one(shipped: Recipe) -> None:
    flat = replace(shipped, warmup_steps=0, cooldown_steps=0)
    assert {flat.rate_at(step) for step in range(0, flat.num_steps, 50)} == {flat.rate}


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_stages_come_in_order_each_for_its_steps(shipped: Recipe, lengths: list[int]) -> None:
    stages = tuple(Stage(steps=steps, clip_frames=(4 + at,)) for at, steps in enumerate(lengths))
    recipe = replace(shipped, stages=stages)
    in_order = [stage for stage in stages for _ in range(stage.steps)]
    assert [recipe.stage_at(step) for step in range(recipe.num_steps)] == in_order
    with pytest.raises(SettingError, match=f"below {recipe.num_steps}, but got {recipe.num_steps}"):
        recipe.stage_at(recipe.num_steps)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("rate = 1e-3", "", "too much or too little: rate"),
        ("rate = 1e-3", "rate = 1e-3\nspeed = 3", "too much or too little: speed"),
        ("rate = 1e-3", 'rate = "fast"', "rate to be a number, but got 'fast'"),
        ("rate = 1e-3", "rate = 0", "a rate above 0, but got 0"),
        ("rate = 1e-3", "rate = inf", "a rate above 0, but got inf"),
        ("weight_decay = 0.02", "weight_decay = -1.0", "weight decay of 0 to 1"),
        ("warmup_steps = 100", "warmup_steps = 3.5", "warmup_steps to be a whole number, but got 3.5"),
        ("warmup_steps = 100", "warmup_steps = true", "warmup_steps to be a whole number, but got True"),
        ("warmup_steps = 100", "warmup_steps = -1", "no or some steps of warm-up"),
        ("frames_per_step = 960", "frames_per_step = 0", "some frames in each step"),
        ("worlds = 1400", "worlds = 0", "filming to be 1 or more"),
        ("sizes = [[98, 126],", "sizes = [[98, 0],", "of 1 pixel or more each way"),
        ("sizes = [[98, 126],", "sizes = [[98],", "a list of heights and widths"),
        ('families = ["house",', 'families = ["castle",', "no family of worlds 'castle'; choose house"),
        ('families = ["house",', 'families = ["table",', "families that may be learned from, which table may not"),
        ('families = ["house",', "families = [1,", "a list of names"),
        ("returning = 0.2", "returning = 0.96", "shares of clips that add up to 1 or less"),
        ("worlds = 4", "worlds = 0", "judge in some worlds"),
        ("[film]", "[filming]", "too much or too little"),
        ("[judge]\n", "judge = 3\n[other]\n", "Expected a table"),
        (
            "clip_frames = [24, 48, 48, 48, 96, 96, 96, 192]",
            "clip_frames = 8",
            "clip_frames to be a list of whole numbers, but got 8",
        ),
        (
            "clip_frames = [24, 48, 48, 48, 96, 96, 96, 192]",
            'clip_frames = ["8"]',
            "clip_frames to be a list of whole numbers",
        ),
        ("clip_frames = [24, 48, 48, 48, 96, 96, 96, 192]", "clip_frames = []", "lengths of clips"),
        ("clip_frames = [24, 48, 48, 48, 96, 96, 96, 192]", "clip_frames = [1, 12]", "each of 4 frames or more"),
        ("clip_frames = [24, 48, 48, 48, 96, 96, 96, 192]", "clip_frames = [8, 401]", "clips of 400 frames at most"),
        ("steps = 36000", "steps = 0", "a stage of one step or more, but got 0"),
        ("steps = 36000", "", "too much or too little: steps"),
        ("rate = 1e-3", "rate = ", "cannot be read as one"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused_in_a_sentence(
    old: str, new: str, told: str, tmp_path: Path
) -> None:
    text = shipped_recipe("micro-map").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=told) as refused:
        read_recipe(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_recipe_without_stages_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(shipped_recipe("micro-map").read_text().split("[[stage]]")[0])
    with pytest.raises(InputError, match="one stage or more"):
        read_recipe(path)
    path.write_text("stage = 4\n" + path.read_text())
    with pytest.raises(InputError, match="Expected a table"):
        read_recipe(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as one"):
        read_recipe(path)
    with pytest.raises(InputError, match="cannot be read as one"):
        read_recipe(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="cannot be read as one"):
        read_recipe(tmp_path)


def test_the_recipe_of_micro_vqa_mixes_rates_and_lengths() -> None:
    recipe = read_vqa_recipe(shipped_recipe("micro-vqa"))
    assert recipe.cooldown_steps < recipe.num_steps
    assert recipe.film.sizes == (FRAME_SIZE,)
    assert (recipe.ask.shortest_stride, recipe.film.longest_stride) == (3, 10)
    assert {16, 32, 64, 128} <= {length for stage in recipe.stages for length in stage.clip_frames}
    assert read_vqa_recipe(shipped_recipe("micro-vqa-quick")).num_steps < 20


def test_longer_clips_are_asked_about_more() -> None:
    ask = read_vqa_recipe(shipped_recipe("micro-vqa")).ask
    assert ask.for_clip(16) == ask.for_clip(32) == ask
    longer = ask.for_clip(128)
    assert (longer.questions, longer.question_tokens) == (4 * ask.questions, 4 * ask.question_tokens)
    assert longer.moments == ask.moments


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("moments = 4", "moments = 1", "two moments or more"),
        ("moments = 4", "", "too much or too little: moments"),
        ("questions = 5", "questions = 0", "some questions at each moment"),
        ("judged_clips = 4", "judged_clips = 0", "some clips to be judged by"),
        ("question_tokens = 360", "question_tokens = 19", "places for the longest question, but got 19"),
        ("shortest_stride = 3", "shortest_stride = 0", "a stride of 1 or more"),
        ("longest_stride = 10", "longest_stride = 2", "a shortest stride no longer than the longest"),
        ("shortest_stride = 3", "shortest_stride = 7", "over 640 frames at most, as filmed, but got 890"),
        ("clip_frames = [16, 32, 64]", "clip_frames = [16, 31]", "clips of pairs of frames"),
        ("usual_frames = 32", "usual_frames = 0", "a usual length of clips"),
    ],
)
def test_a_recipe_of_micro_vqa_that_cannot_be_followed_is_refused(
    old: str, new: str, told: str, tmp_path: Path
) -> None:
    text = shipped_recipe("micro-vqa").read_text()
    assert old in text
    path = tmp_path / "recipe.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=told) as refused:
        read_vqa_recipe(path)
    assert str(path) in str(refused.value)
