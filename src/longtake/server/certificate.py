"""A server's own certificate: made for the names it is served under, kept beside its sessions, used while valid."""

import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from longtake.errors import InputError
from longtake.extras import import_from_extra
from longtake.takes.atomic_files import writing

if TYPE_CHECKING:
    from cryptography import x509

CERTIFICATE_NAME, KEY_NAME = "certificate.pem", "key.pem"
_LIFE = timedelta(days=397)
"""What phones take at most."""
_LEAST_LEFT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """What a server shows, and the key to it."""

    certificate: Path
    key: Path

    def require_usable(self) -> "CertificateFiles":
        """The same; files that make no pair are refused in one sentence."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ValueError) as error:
            raise InputError(
                f"Expected a certificate in {self.certificate} and its key, without a password, in {self.key}, both as "
                f"PEM, but they cannot be used ({error})."
            ) from error
        return self


def own_certificate(
    folder: Path, names: Sequence[str], now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> CertificateFiles:
    """The one in the folder if it is of these names and valid for a day, else a new one."""
    import_from_extra("cryptography", "serve", "A certificate of one's own")
    files = CertificateFiles(folder / CERTIFICATE_NAME, folder / KEY_NAME)
    if not _is_good(files, names, now()):
        _make(files, names, now())
    return files


def _is_good(files: CertificateFiles, names: Sequence[str], now: datetime) -> bool:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = load_pem_private_key(files.key.read_bytes(), None)
        served = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    is_valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - _LEAST_LEFT
    return is_valid and certificate.public_key() == key.public_key() and list(served) == list(_general(names))


def _make(files: CertificateFiles, names: Sequence[str], now: datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    own_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "longtake")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(own_name)
        .issuer_name(own_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFE)
        .add_extension(_general(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with writing(str(files.key.parent)):
        files.key.parent.mkdir(parents=True, exist_ok=True)
        _write(files.key, secret, 0o600)
        _write(files.certificate, certificate.public_bytes(pem), 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """In one step, and never readable by more than it will be."""
    unfinished = path.with_suffix(".unfinished")
    with suppress(FileNotFoundError):
        unfinished.unlink()
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.replace(path)


def _general(names: Sequence[str]) -> "x509.SubjectAlternativeName":
    """Names and addresses, of which an IPv6 one may stand in brackets."""
    from cryptography import x509

    def general(name: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ip_address(name.strip("[]")))
        except ValueError:
            return x509.DNSName(name)

    return x509.SubjectAlternativeName([general(name) for name in names])
