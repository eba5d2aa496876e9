import pytest
import torch

from longtake.attention import triton
from longtake.errors import SettingError
from longtake.runtime import execution
from longtake.runtime.execution import Execution, Precision, choose_device, choose_execution, fastest_backend


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU as torch would describe one; nothing is computed on it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(execution, "_has_bfloat16", lambda device: True)
    monkeypatch.setattr(execution, "find_spec", lambda name: None)
    monkeypatch.setattr(triton, "why_missing", lambda: "the kernels need Triton")


def test_cpu_is_exact_by_default() -> None:
    chosen = choose_execution("cpu")
    assert (chosen.device, chosen.precision, chosen.backend) == ("cpu", Precision.FP32, "sdpa")
    assert "float32 is exact" in chosen.why


@pytest.mark.usefixtures("gpu")
def test_gpu_runs_in_bfloat16_by_default() -> None:
    chosen = choose_execution()
    assert (chosen.device, chosen.precision, chosen.backend) == ("cuda", Precision.BF16, "sdpa")
    assert "bf16 on cuda, attention by sdpa" in str(chosen)
    assert "torch's own fused kernels, for the kernels need Triton" in chosen.why


@pytest.mark.usefixtures("gpu")
def test_gpu_runs_on_our_own_kernels_where_they_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "why_missing", lambda: None)
    assert choose_execution().backend == "triton"
    assert choose_execution(precision="fp16").backend == "triton"
    exact = choose_execution(precision="fp32")
    assert exact.backend == "sdpa"
    assert "the kernels compute in float16 or bfloat16, not in torch.float32" in exact.why
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "the kernels need an Ampere GPU or a later one, not Some GPU" in choose_execution().why
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert "the kernels run on NVIDIA GPUs, not on ROCm" in choose_execution().why


@pytest.mark.usefixtures("gpu")
def test_own_kernels_are_refused_with_the_reason_where_they_cannot_be_used() -> None:
    with pytest.raises(SettingError, match="triton backend cannot be used here: the kernels need Triton; choose sdpa"):
        choose_execution(backend="triton")
    with pytest.raises(SettingError, match="the kernels run on NVIDIA GPUs, not on cpu; choose sdpa"):
        choose_execution("cpu", backend="triton")


@pytest.mark.usefixtures("gpu")
def test_gpu_without_bfloat16_runs_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_has_bfloat16", lambda device: False)
    chosen = choose_execution()
    assert chosen.precision is Precision.FP16
    assert "no bfloat16" in chosen.why
    with pytest.raises(SettingError, match=r"bfloat16 for precision bf16, but Some GPU has none; choose fp16 or fp32"):
        choose_execution(precision="bf16")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("capability", "backend"), [((9, 0), "flashinfer-fa3"), ((8, 0), "flashinfer")])
def test_fastest_backend_that_is_installed_is_taken(
    capability: tuple[int, int], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_execution().backend == backend
    assert choose_execution(precision="fp32").backend == "sdpa"
    assert choose_execution(backend="reference").backend == "reference"


@pytest.mark.usefixtures("gpu")
def test_fastest_backend_goes_by_the_device_and_the_type_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "why_missing", lambda: None)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert fastest_backend(cuda, torch.bfloat16) == fastest_backend(cuda, torch.float16) == "triton"
    assert fastest_backend(cuda, torch.float32) == "sdpa"
    assert fastest_backend(cpu, torch.bfloat16) == fastest_backend(cpu, torch.float32) == "sdpa"


@pytest.mark.usefixtures("gpu")
def test_why_the_portable_path_is_taken_is_said_of_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_execution().why_portable() == "the kernels need Triton"
    assert choose_execution("cpu").why_portable() is None
    monkeypatch.setattr(triton, "why_missing", lambda: None)
    assert choose_execution().why_portable() is None
    assert choose_execution(backend="reference").why_portable() == "attention goes through the reference backend"
    assert choose_execution(precision="fp32").why_portable() == (
        "the kernels compute in float16 or bfloat16, not in torch.float32"
    )
    default, why = choose_execution(), "there are kernels for heads of 64 and 128 channels, not of 48"
    assert default.why_portable(48) == why
    assert default.of(64) == default
    assert default.of(48).why == f"{default.why}; portable path: {why}"


@pytest.mark.usefixtures("gpu")
def test_float32_on_a_gpu_is_exact_as_asked_for() -> None:
    chosen = choose_execution("cuda", "fp32", "sdpa")
    assert chosen == Execution(device="cuda", precision=Precision.FP32, backend="sdpa", why="as asked for")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"precision": "int4"}, "There is no precision 'int4'; choose one of fp32, bf16, fp16, auto"),
        ({"backend": "fast"}, "There is no attention backend 'fast'; choose one of sdpa, reference"),
        ({"device": "tpu"}, "There is no device 'tpu'; choose one of cpu, cuda, auto"),
        ({"device": "cpu", "precision": "fp16"}, "Expected a GPU for precision fp16, .* choose bf16 or fp32"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        choose_execution(**options)


@pytest.mark.parametrize("precision", Precision)
def test_each_precision_has_a_number_type(precision: Precision) -> None:
    assert precision.dtype.itemsize == (4 if precision is Precision.FP32 else 2)


def test_no_gpu_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match="sees no CUDA device"):
        choose_device("cuda")
    assert choose_device("auto") == torch.device("cpu")
