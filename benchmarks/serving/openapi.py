"""All that a server's OpenAPI describes, called with values that schemathesis makes up: nothing may break it."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving.process import ServerProcess
from longtake.extras import import_from_extra

_OPTIONS = ("--memory", "300MB", "--session-memory", "10MB", "--quota", "1GB", "--idle", "2")
_MOST_S = 1800.0
_REPORT = "report.ndjson"
ALL_PHASES = "examples,coverage,fuzzing,stateful"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiFigures:
    """How many cases were sent, and what came of them."""

    num_cases: int
    num_operations: int
    statuses: dict[int, int]
    seconds: float
    failures: str
    """What schemathesis printed, where it found something."""

    @property
    def num_server_errors(self) -> int:
        return sum(number for status, number in self.statuses.items() if status >= 500)

    @property
    def is_fine(self) -> bool:
        """503 is no failure of the server, but none is expected here either."""
        return not self.failures and self.num_server_errors == 0 and 0 not in self.statuses


def call_everything(folder: Path, num_cases: int, *, phases: str = ALL_PHASES, seed: int = 0) -> OpenApiFigures:
    """At least so many cases, in as many runs of schemathesis as it takes; what it writes stays in the folder."""
    import_from_extra("schemathesis", "dev", "This measurement")
    folder.mkdir(parents=True, exist_ok=True)
    statuses: Counter[int] = Counter()
    failures, started_s = "", time.monotonic()
    with ServerProcess(folder / "sessions", *_OPTIONS) as server:
        schema = server.call("GET", "/v1/openapi.json").record
        num_operations = sum(len(methods) for methods in schema["paths"].values())
        while sum(statuses.values()) < num_cases and not failures:
            examples = max(2, (num_cases - sum(statuses.values())) // num_operations)
            (folder / "openapi.json").write_text(json.dumps(_with_real_ids(schema, _open_some(server))))
            done = _run(folder, server.url, phases, examples, seed)
            failures = "" if done.returncode == 0 else done.stdout + done.stderr
            statuses += _statuses(folder / _REPORT)
            seed += 1
        assert server.process.poll() is None, "the server ended"
    return OpenApiFigures(
        num_cases=sum(statuses.values()),
        num_operations=num_operations,
        statuses=dict(sorted(statuses.items())),
        seconds=time.monotonic() - started_s,
        failures=failures,
    )


def _open_some(server: ServerProcess) -> list[str]:
    """Sessions of every kind, so that calls get past the question whether there is one."""
    asked: list[dict[str, Any]] = [
        {"language": None},
        {"model": None},
        {},
        {"source": "upload", "language": None},
        {"source": "world:9?frames=3&size=56x42", "language": None},
    ]
    replies = [server.call("POST", "/v1/sessions", {"memory": "20MB", **one}) for one in asked]
    return [reply.record["id"] for reply in replies if reply.status == 201]


def _with_real_ids(schema: Mapping[str, Any], ids: list[str]) -> Mapping[str, Any]:
    """The same schema, where ids are mostly such that exist; what ends a session is left to any id."""
    real = {"anyOf": [{"enum": ids}, {"type": "string"}]}
    changed: dict[str, Any] = json.loads(json.dumps(schema))
    for methods in changed["paths"].values():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "id" and method != "delete":
                    parameter["schema"] = real
    for model in changed["components"]["schemas"].values():
        if "session_id" in model.get("properties", {}):
            model["properties"]["session_id"] = real
    return changed


def _run(folder: Path, url: str, phases: str, examples: int, seed: int) -> "subprocess.CompletedProcess[str]":
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", url, "--no-color"),
        *("--checks", "not_a_server_error", "--phases", phases, "--max-examples", str(examples), "--seed", str(seed)),
        *("--generation-database", "none", "--report", "ndjson", "--report-ndjson-path", _REPORT),
    ]
    return subprocess.run(  # noqa: S603 - schemathesis, beside this program
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_MOST_S
    )


def _statuses(report: Path) -> Counter[int]:
    """Of all replies in a report; 0 where none came."""
    found: Counter[int] = Counter()
    for line in report.read_text().splitlines():
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for interaction in recorder.get("interactions", {}).values():
            found[(interaction.get("response") or {}).get("status_code", 0)] += 1
    return found
