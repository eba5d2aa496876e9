"""The counting script: lines, importers, and files that a frame and a question cross."""

from pathlib import Path

import pytest

from benchmarks.count_source import measure_source, num_lines, single_importers


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """`b` and `parts/c` have one importer each, `d` has two, `e` none but itself."""
    files = {
        "__init__.py": "",
        "a.py": "from house.b import x\nfrom house import d\n",
        "b.py": "import house.d\nx = 1\n\ndef later():\n    from house.parts import c\n    return c\n",
        "d.py": "import torch\n",
        "e.py": "from house.e import y\n",
        "parts/__init__.py": "",
        "parts/c.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "house" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path / "house"


def test_lines_are_those_of_all_python_files(package: Path) -> None:
    (package / "notes.txt").write_text("1\n2\n3\n")
    assert num_lines(package) == 2 + 6 + 1 + 1


def test_imports_within_functions_and_of_modules_by_name_count(package: Path) -> None:
    assert single_importers(package) == ["b.py", "parts/c.py"]


@pytest.mark.extra
def test_a_frame_crosses_the_network_and_a_question_the_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measure_source()
    assert capsys.readouterr().out == ""
    assert set(figures.frame_files) <= set(figures.map_files)
    assert {"geometry/model.py", "memory/transaction.py", "takes/writer.py"} <= set(figures.frame_files)
    loading = [file for file in figures.frame_files if file.startswith(("language/", "hub/", "weights/"))]
    assert loading == ["weights/familiarity.py"]  # by which first frames are judged
    assert set(figures.more_question_files) <= set(figures.question_files)
    assert {"runtime/dialogue.py", "language/sampling.py"} <= set(figures.more_question_files)
    assert not any(file.startswith("geometry/") for file in figures.question_files)
    assert 0 < len(figures.single_importer) < figures.num_files
    assert figures.whole_lines == sum(figures.lines.values()) > figures.lines["wheel"] > 20_000
