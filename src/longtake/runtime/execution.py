"""How a network is computed: its device, number type and attention backend, chosen once and said with the reason."""

from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.util import find_spec

import torch

from longtake.attention.choose import BACKENDS, require_backend
from longtake.attention.triton import TritonBackend, why_unsuitable
from longtake.errors import SettingError

AUTO = "auto"
DEVICES = ("cpu", "cuda")
_HOPPER = 9
_COMMON_HEAD_DIM = 64
"""Of the published networks; one whose heads are of another size goes through torch."""


class Precision(StrEnum):
    """The number type of products, keys and values; norms, residuals, phases and heads stay float32."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def dtype(self) -> torch.dtype:
        return {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What a run says of itself: in its first line without the reason, with it in its summary."""

    device: str = "cpu"
    precision: Precision = Precision.FP32
    backend: str = "sdpa"
    why: str = "exact, as asked for"

    def __str__(self) -> str:
        return f"{self.precision} on {self.device}, attention by {self.backend} ({self.why})"

    def why_portable(self, head_dim: int = _COMMON_HEAD_DIM) -> str | None:
        """Why a network with heads of so many channels goes through torch's kernels on a GPU.

        None where it goes through ours, and on a CPU, where there is no other way.
        """
        device = torch.device(self.device)
        if device.type != "cuda":
            return None
        why = why_unsuitable(device, self.precision.dtype, head_dim)
        return portable_by(self.backend) if why is None and self.backend != TritonBackend.name else why

    def of(self, head_dim: int) -> "Execution":
        """The same with the reason why such a network goes through torch's kernels, where it does."""
        why = self.why_portable(head_dim)
        return self if why is None else replace(self, why=f"{self.why}; portable path: {why}")


def choose_execution(device: str = AUTO, precision: str = AUTO, backend: str = AUTO) -> Execution:
    """The fastest that is exact enough: on a GPU half precision and the quickest backend installed, else float32.

    Each of the three can be named instead; what cannot be had here is refused in one sentence.
    """
    place = choose_device(device)
    chosen = _precision(precision, place)
    name = _backend(backend, place, chosen)
    reasons = [
        f"{place.type} is {'the fastest device' if place.type == 'cuda' else 'all that torch sees'}"
        if device == AUTO
        else "",
        _why_precision(place, chosen) if precision == AUTO else "",
        _why_backend(name, place, chosen) if backend == AUTO else "",
    ]
    return Execution(
        device=str(place), precision=chosen, backend=name, why="; ".join(filter(None, reasons)) or "as asked for"
    )


def require_execution_names(device: str, precision: str, backend: str) -> None:
    """Refuse words that nobody knows; whether this machine has what they name is another question."""
    _require_device_name(device)
    _require_precision_name(precision)
    require_backend(backend, (*BACKENDS, AUTO))


def choose_device(name: str) -> torch.device:
    """A device by name; `auto` is the GPU where torch sees one."""
    _require_device_name(name)
    if name == AUTO:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("Torch sees no CUDA device here; choose cpu, or install a CUDA build of torch.")
    return torch.device(name)


def _require_device_name(name: str) -> None:
    if name not in (*DEVICES, AUTO):
        raise SettingError(f"There is no device '{name}'; choose one of {', '.join((*DEVICES, AUTO))}.")


def _require_precision_name(name: str) -> None:
    if name not in (*Precision, AUTO):
        raise SettingError(f"There is no precision '{name}'; choose one of {', '.join((*Precision, AUTO))}.")


def _precision(name: str, device: torch.device) -> Precision:
    _require_precision_name(name)
    if name == AUTO:
        if device.type != "cuda":
            return Precision.FP32
        return Precision.BF16 if _has_bfloat16(device) else Precision.FP16
    if name == Precision.BF16 and device.type == "cuda" and not _has_bfloat16(device):
        raise SettingError(
            f"Expected a GPU with bfloat16 for precision bf16, but {torch.cuda.get_device_name(device)} has none; "
            "choose fp16 or fp32."
        )
    if name == Precision.FP16 and device.type == "cpu":
        raise SettingError("Expected a GPU for precision fp16, but the device is the CPU; choose bf16 or fp32.")
    return Precision(name)


def fastest_backend(device: torch.device, dtype: torch.dtype) -> str:
    """What `auto` is for a network on this device in this type: our kernels, else FlashInfer, else torch's."""
    if why_unsuitable(device, dtype, _COMMON_HEAD_DIM) is None:
        return TritonBackend.name
    if device.type == "cuda" and dtype != torch.float32 and find_spec("flashinfer") is not None:
        return "flashinfer-fa3" if torch.cuda.get_device_capability(device)[0] == _HOPPER else "flashinfer"
    return "sdpa"


def portable_by(backend: str) -> str:
    """Why steps and passes are not recorded where our kernels could be used: attention was asked for otherwise."""
    return f"attention goes through the {backend} backend"


def _backend(name: str, device: torch.device, precision: Precision) -> str:
    if name == AUTO:
        return fastest_backend(device, precision.dtype)
    require_backend(name, (*BACKENDS, AUTO))
    why_not = why_unsuitable(device, precision.dtype, _COMMON_HEAD_DIM)
    if name == TritonBackend.name and why_not is not None:
        raise SettingError(f"The triton backend cannot be used here: {why_not}; choose sdpa.")
    return name


def _has_bfloat16(device: torch.device) -> bool:
    """In hardware: emulated it is slower than float32."""
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _why_precision(device: torch.device, precision: Precision) -> str:
    if device.type != "cuda":
        return "float32 is exact, and half types are no faster here"
    if precision is Precision.FP16:
        return "this GPU has no bfloat16"
    return "half precision is several times as fast on this GPU"


def _why_backend(name: str, device: torch.device, precision: Precision) -> str:
    if name == TritonBackend.name:
        return "longtake's own kernels, which read the memory in place"
    if device.type != "cuda":
        return "torch's own fused kernels"
    why_not = why_unsuitable(device, precision.dtype, _COMMON_HEAD_DIM)
    if name.startswith("flashinfer"):
        return f"FlashInfer is installed, and {why_not}"
    return f"torch's own fused kernels, for {why_not}"
