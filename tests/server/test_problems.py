"""What clients are told of a server's files."""

from pathlib import Path

import pytest

from longtake.server.problems import without_place

ID = "0123456789abcdef"


@pytest.mark.parametrize("sessions", ["/srv/my sessions", "sessions", "."])
@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("{0}/{1}/state-3/map.safetensors", "state-3/map.safetensors"),
        ("{0}/{1}.unfinished/session.json", "session.json"),
        ("{0}/{1}", "the session's folder"),
        ("{2}", "the server's folder"),
        ("take.json", "take.json"),
    ],
)
def test_sentences_name_files_as_they_are_in_the_session_s_folder(sessions: str, named: str, shown: str) -> None:
    folder = Path(sessions)
    for place in (folder, folder.resolve()):
        path = Path(named.format(place, ID, folder.resolve()))
        sentence = f"The saved session {path} cannot be read (No such file); save it again, in 10.5 s."
        assert without_place(sentence, folder) == sentence.replace(str(path), shown)
