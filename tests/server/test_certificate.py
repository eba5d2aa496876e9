"""A certificate that the server makes, keeps and shows; clients that were given it speak to no other."""

import json
import shutil
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from server_process import ServerProcess

import longtake
from longtake.cli.serve import _given_files
from longtake.errors import InputError, SettingError
from longtake.server.certificate import CertificateFiles, own_certificate
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
x509 = pytest.importorskip("cryptography.x509")
pytestmark = pytest.mark.extra

NAMES = ("robot.lan", "127.0.0.1", "[::1]")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def made(folder: Path, names: tuple[str, ...] = NAMES, days: float = 0.0) -> bytes:
    """The certificate of a server that is started so many days later."""
    return own_certificate(folder, names, lambda: NOW + timedelta(days=days)).certificate.read_bytes()


def test_it_is_for_the_names_served_and_its_key_for_nobody_else(tmp_path: Path) -> None:
    files = own_certificate(tmp_path / "sessions", NAMES)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    served = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in served] == ["robot.lan", "127.0.0.1", "::1"]
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert files.require_usable() == files


def test_it_is_used_again_while_it_is_valid_and_of_the_same_names(tmp_path: Path) -> None:
    first = made(tmp_path)
    assert made(tmp_path, days=395) == first
    second = made(tmp_path, days=396.5)
    assert second != first
    assert made(tmp_path, names=("robot.lan",), days=397) != second


@pytest.mark.parametrize("damage", ["certificate.pem", "key.pem"])
def test_one_that_cannot_be_read_or_has_another_key_is_made_anew(tmp_path: Path, damage: str) -> None:
    made(tmp_path / "other")
    first = made(tmp_path)
    shutil.copy(tmp_path / "other" / damage, tmp_path / damage)
    assert made(tmp_path) != first
    (tmp_path / damage).write_text("nothing")
    assert b"BEGIN CERTIFICATE" in made(tmp_path)


def test_files_that_make_no_pair_are_refused_in_a_sentence(tmp_path: Path) -> None:
    made(tmp_path)
    made(tmp_path / "other")
    for key in (tmp_path / "other" / "key.pem", tmp_path / "nothing.pem"):
        with pytest.raises(InputError, match="Expected a certificate in"):
            CertificateFiles(tmp_path / "certificate.pem", key).require_usable()


def test_a_server_by_https_speaks_to_clients_that_have_its_certificate(
    tmp_path: Path, frames: list[VideoFrame]
) -> None:
    with ServerProcess(tmp_path / "sessions", "--https") as server:
        assert server.url.startswith("https://127.0.0.1:")
        path = tmp_path / "sessions" / "certificate.pem"
        assert f"Clients need this certificate: {path}" in server.lines
        client = longtake.Client(server.url, certificate=path)
        with client.open_session(ask=None, memory="10MB") as session:
            assert session.step(frames[0]) is not None
        for call in (lambda: longtake.Client(server.url).models(), lambda: longtake.Client(server.url).open_session()):
            with pytest.raises(InputError, match="not trusted here"):
                call()
        if curl := shutil.which("curl"):
            command = [curl, "-s", "--noproxy", "*", "--cacert", str(path), f"{server.url}/health"]
            assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["status"] == "ok"
            assert subprocess.run([*command[:4], command[-1]], capture_output=True, check=False).returncode == 60
        assert server.stop() == 0


def test_options_without_a_meaning_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="https://"):
        longtake.Client("http://127.0.0.1:8765", certificate="x.pem")
    with pytest.raises(InputError, match="cannot be read"):
        longtake.Client("https://127.0.0.1:8765", certificate=tmp_path / "nothing.pem").models()
    made(tmp_path)
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    assert _given_files(certificate, key) == CertificateFiles(certificate, key)
    assert _given_files(None, None) is None
    for one_alone in ((certificate, None), (None, key)):
        with pytest.raises(SettingError, match="--certificate and --key together"):
            _given_files(*one_alone)
