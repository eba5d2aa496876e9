"""Examples in the documentation."""

import re
from collections.abc import Sequence
from pathlib import Path


def blocks(pages: Sequence[Path], language: str) -> list[str]:
    """All fenced blocks of a language, page by page."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [block for page in pages for block in pattern.findall(page.read_text())]
