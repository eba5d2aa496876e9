"""What a run of the command line left behind."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int | None
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of a run with `--json`."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [found for found in self.events if found["event"] == event]
