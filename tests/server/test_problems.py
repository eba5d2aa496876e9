"""What clients are told of a server's files."""

from pathlib import Path

import pytest

from longtake.server.problems import for_clients, without_place

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


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("The saved session has no tensor 'k'; save it again.", "The saved session has no tensor 'k'"),
        ("Files are of another save; of two; save the session again.", "Files are of another save; of two"),
        ("session.json cannot be read (No such file).", "session.json cannot be read (No such file)"),
    ],
)
def test_clients_are_told_what_they_can_do_about_a_damaged_save(sentence: str, fault: str) -> None:
    advice = "open another session and send its frames again, or tell the server's operator."
    assert for_clients(sentence) == f"{fault}; {advice}"
