import shutil
from pathlib import Path

from longtake.hub.bundled import bundled_folder
from longtake.language.question_grammar import KNOWN_NAME
from longtake.server.networks import Networks


def test_a_model_is_offered_with_questions_that_it_was_taught(networks: Networks) -> None:
    language = networks.language_named("micro-vqa")
    assert language is not None
    questions = networks.questions_for("micro-vqa")
    assert len(questions) > 5
    assert all(language.question_ids(question) for question in questions)
    assert Networks().questions_for("micro-vqa") == questions
    assert "blue" in networks.words_for("micro-vqa")["rooms, by the colour of their walls"]
    assert not Networks().words_for("Qwen/Qwen2.5-VL-3B-Instruct")


def test_a_folder_is_read_for_them_and_any_other_model_gets_general_ones(tmp_path: Path) -> None:
    folder = bundled_folder("micro-vqa")
    assert folder is not None
    general = Networks().questions_for("Qwen/Qwen2.5-VL-3B-Instruct")
    assert Networks().questions_for(str(tmp_path)) == general
    shutil.copy(folder / KNOWN_NAME, tmp_path)
    assert Networks().questions_for(str(tmp_path)) != general
