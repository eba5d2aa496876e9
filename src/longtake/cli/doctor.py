"""`longtake doctor`: what is installed, what is used and why, and whether it computes right."""

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import psutil
import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from longtake import __version__
from longtake.attention.backend import Attended, ReferenceBackend, SdpaBackend
from longtake.attention.triton import TritonBackend, why_unsuitable
from longtake.cli.options import AsJson, command_app
from longtake.cli.tables import show
from longtake.errors import MissingExtraError
from longtake.extras import import_from_extra, known_extras
from longtake.memory.slots import Seen, view_of
from longtake.runtime.execution import Execution, choose_execution

PURPOSES = {
    "cuda": "tells the GPU driver's version here; CUDA itself comes with torch",
    "eval": "points against the truth",
    "flashinfer": "faster attention on NVIDIA GPUs",
    "hub": "models by name from the Hugging Face hub",
    "plot": "pictures of eval and bench",
    "qwen": "ask and live",
    "ray": "batch --on ray: many machines",
    "rerun": "the format rrd",
    "serve": "serve, its page, and clients of a server",
    "sky": "--sky of map and export",
}
"""What each extra is for."""
_TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
_HEAD_DIM = 64
Attend = Callable[[Tensor, Tensor, Tensor], Attended]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    topic: str
    found: str
    note: str = ""
    ok: bool = True


app = command_app()


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is installed, which attention backend is used and why, and check that it computes right."""
    findings = [*_software(), *_hardware(), *_attention(), *_extras()]
    show([asdict(finding) for finding in findings], _blocks(findings), as_json=as_json)
    if not all(finding.ok for finding in findings):
        raise SystemExit(1)


def _blocks(findings: list[Finding]) -> Iterator[str | Table]:
    drawn = Table(box=None, pad_edge=False)
    for heading in ("", "found", "note"):
        drawn.add_column(heading, overflow="fold")
    for finding in findings:
        found = Text(finding.found, style="" if finding.ok else "red")
        drawn.add_row(Text(finding.topic), found, Text(finding.note))
    yield drawn
    are_well = all(finding.ok for finding in findings)
    yield "\nAll is well." if are_well else "\nSomething is wrong: see the lines in red."


def _software() -> list[Finding]:
    return [
        Finding("longtake", __version__),
        Finding("Python", platform.python_version(), platform.platform()),
        Finding("torch", torch.__version__, "2.11 to 2.13 are supported"),
    ]


def _hardware() -> list[Finding]:
    memory = psutil.virtual_memory()
    findings = [
        Finding("CPU", f"{os.cpu_count()} cores", f"torch uses {torch.get_num_threads()} threads"),
        Finding("host memory", f"{memory.total / 1e9:.1f} GB", f"{memory.available / 1e9:.1f} GB free"),
    ]
    if torch.cuda.is_available():
        findings.append(Finding("GPU driver", _driver()))
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            name = torch.cuda.get_device_name(index)
            findings.append(Finding(f"GPU {index}", f"{name}, {total / 1e9:.1f} GB", f"{free / 1e9:.1f} GB free"))
    else:
        findings.append(Finding("GPU", "none", "this torch sees no CUDA device; everything runs on the CPU"))
    return findings


def _driver() -> str:
    try:
        pynvml = import_from_extra("pynvml", "cuda", "The driver's version")
    except MissingExtraError as error:
        return str(error)
    pynvml.nvmlInit()
    return str(pynvml.nvmlSystemGetDriverVersion())


def _attention() -> list[Finding]:
    """Which backend is used on each device, and its error against the reference on random numbers."""
    if torch.cuda.is_available():
        device = torch.device("cuda")
        why = "fused CUDA kernels that return log-sum-exp; float32 runs the memory-efficient one, half types flash"
    else:
        device = torch.device("cpu")
        why = "the fused CPU kernel returns log-sum-exp, so blocks of memory are merged exactly"
    default = choose_execution()
    findings = [
        Finding("by default", f"{default.precision} on {default.device}, attention by {default.backend}", default.why),
        *_dialogues(default),
        Finding("attention", "sdpa", why),
    ]
    findings += _errors(device, tuple(_TOLERANCES), SdpaBackend().attend)
    why_not = why_unsuitable(device, torch.bfloat16, _HEAD_DIM)
    findings.append(Finding("", "triton", why_not or "our own kernels, which read the memory in place"))
    return findings if why_not else findings + _errors(device, (torch.bfloat16,), _attend_in_place)


def _dialogues(default: Execution) -> list[Finding]:
    """On a GPU, whether frames and questions are recorded; on a CPU there is no other way, and nothing to be said."""
    if default.device == "cpu":
        return []
    why_not = default.why_portable()
    found = "portable path" if why_not else "recorded as CUDA graphs"
    return [Finding("dialogues", found, why_not or "frames, questions and words go through our own kernels")]


def _errors(device: torch.device, dtypes: tuple[torch.dtype, ...], attend: Attend) -> list[Finding]:
    found = []
    for dtype in dtypes:
        error, tolerance = _attention_error(device, dtype, attend), _TOLERANCES[dtype]
        note = f"largest difference to the reference; at most {tolerance:g} is expected"
        found.append(Finding(f"  {device} {str(dtype)[6:]}", f"{error:.1e}", note, ok=error <= tolerance))
    return found


def _attend_in_place(q: Tensor, k: Tensor, v: Tensor) -> Attended:
    whole = view_of((np.arange(k.shape[1]),), q.device)
    return TritonBackend().attend_slots(q, Seen.of(k[0], v[0], whole))


def _attention_error(device: torch.device, dtype: torch.dtype, attend: Attend) -> float:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, n, 2, _HEAD_DIM, generator=generator).to(device, dtype) for n in (100, 700, 700))
    got = attend(q, k, v)
    want = ReferenceBackend().attend(q, k, v)
    errors = (got.values - want.values, got.log_sum_exp - want.log_sum_exp)
    return max(float(error.abs().max()) for error in errors)


def _extras() -> list[Finding]:
    return [
        Finding(
            f"extra {extra.name}",
            f"missing {', '.join(extra.missing)}" if extra.missing else "installed",
            f"{PURPOSES[extra.name]}; {extra.install_command}" if extra.missing else PURPOSES[extra.name],
        )
        for extra in known_extras()
    ]
