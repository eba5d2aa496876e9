"""A script in the style of the published demonstration, in which only the import line is another."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

IMPORT = "from lingbot_map.models.gct_stream import GCTStream"

SCRIPT = '''
import argparse

import numpy as np
import torch

from lingbot_map.models.gct_stream import GCTStream


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_path", required=True)
    parser.add_argument("--frames", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--mode", choices=["streaming", "windowed"], default="streaming")
    parser.add_argument("--image_size", type=int, default=518)
    parser.add_argument("--patch_size", type=int, default=14)
    parser.add_argument("--embed_dim", type=int, default=1024)
    parser.add_argument("--max_frame_num", type=int, default=1024)
    parser.add_argument("--num_scale_frames", type=int, default=8)
    parser.add_argument("--keyframe_interval", type=int, default=1)
    parser.add_argument("--kv_cache_sliding_window", type=int, default=64)
    parser.add_argument("--camera_num_iterations", type=int, default=4)
    parser.add_argument("--window_size", type=int, default=64)
    parser.add_argument("--overlap_size", type=int, default=16)
    parser.add_argument("--use_sdpa", action="store_true")
    parser.add_argument("--offload_to_cpu", action="store_true")
    return parser.parse_args()


def load(args, device):
    model = GCTStream(
        img_size=args.image_size,
        patch_size=args.patch_size,
        embed_dim=args.embed_dim,
        enable_3d_rope=True,
        max_frame_num=args.max_frame_num,
        kv_cache_sliding_window=args.kv_cache_sliding_window,
        kv_cache_scale_frames=args.num_scale_frames,
        kv_cache_cross_frame_special=True,
        kv_cache_include_scale_frames=True,
        use_sdpa=args.use_sdpa,
        camera_num_iterations=args.camera_num_iterations,
    )
    checkpoint = torch.load(args.model_path, map_location="cpu")
    missing, unexpected = model.load_state_dict(checkpoint.get("model", checkpoint), strict=False)
    print(f"{len(missing)} missing, {len(unexpected)} unexpected")
    return model.to(device).eval()


def postprocess(predictions, height, width):
    """World-to-camera extrinsics and intrinsics, without the batch axis, on the host."""
    pose = predictions["pose_enc"].double().cpu()
    x, y, z, w = (pose[..., 3:7] / pose[..., 3:7].norm(dim=-1, keepdim=True)).unbind(-1)
    rotation = torch.stack([
        1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
        2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
        2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y),
    ], dim=-1).unflatten(-1, (3, 3))
    world_to_camera = rotation.transpose(-1, -2)
    shift = -(world_to_camera @ pose[..., :3, None])
    focal = torch.tensor([height, width]) / 2 / torch.tan(pose[..., 7:] / 2)
    intrinsic = torch.zeros(*pose.shape[:2], 3, 3, dtype=torch.double)
    intrinsic[..., 0, 0], intrinsic[..., 1, 1] = focal[..., 1], focal[..., 0]
    intrinsic[..., 0, 2], intrinsic[..., 1, 2], intrinsic[..., 2, 2] = width / 2, height / 2, 1
    predictions["extrinsic"], predictions["intrinsic"] = torch.cat([world_to_camera, shift], dim=-1), intrinsic
    predictions.pop("pose_enc_list", None)
    predictions.pop("images", None)
    tensors = {key: value for key, value in predictions.items() if isinstance(value, torch.Tensor)}
    return {key: value.to("cpu")[0].numpy() for key, value in tensors.items()}


def main():
    args = options()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load(args, device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype != torch.float32:
        model.aggregator = model.aggregator.to(dtype=dtype)
    images = torch.load(args.frames).to(device)
    output_device = torch.device("cpu") if args.offload_to_cpu else None
    with torch.no_grad(), torch.amp.autocast("cuda", dtype=dtype, enabled=device.type == "cuda"):
        if args.mode == "streaming":
            predictions = model.inference_streaming(
                images,
                num_scale_frames=args.num_scale_frames,
                keyframe_interval=args.keyframe_interval,
                output_device=output_device,
            )
        else:
            predictions = model.inference_windowed(
                images,
                window_size=args.window_size,
                overlap_size=args.overlap_size,
                num_scale_frames=args.num_scale_frames,
                output_device=output_device,
            )
    np.savez(args.output, **postprocess(predictions, *images.shape[-2:]))


main()
'''

DOOR = """
from functools import partial

from longtake.compat.lingbot import GCTStream
from longtake.geometry.config import GeometryConfig

GCTStream = partial(GCTStream, sizes=GeometryConfig.from_json({sizes!r}))
"""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("stream_kf3", ["--keyframe_interval", "3", "--offload_to_cpu"]),
        ("windowed_w6_o3", ["--mode", "windowed", "--window_size", "6", "--overlap_size", "3", "--use_sdpa"]),
    ],
)
def test_script_runs_with_another_import_line(
    name: str,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Callable[[str], Any],
    golden_frames: Tensor,
    tiny_config: Any,
) -> None:
    import numpy as np

    assert SCRIPT.count(IMPORT) == 1
    (tmp_path / f"door_{name}.py").write_text(DOOR.format(sizes=tiny_config.to_json()))
    (tmp_path / "script.py").write_text(SCRIPT.replace(IMPORT, f"from door_{name} import GCTStream"))
    torch.save({"model": dict(golden("weights").tensors)}, tmp_path / "weights.pt")
    torch.save(golden_frames[0], tmp_path / "frames.pt")
    monkeypatch.syspath_prepend(str(tmp_path))
    sizes = ["--image_size", "56", "--embed_dim", "128", "--num_scale_frames", "2", "--kv_cache_sliding_window", "3"]
    files = ["--model_path", "weights.pt", "--frames", "frames.pt", "--output", "out.npz"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        torch.cuda, "is_available", lambda: False
    )  # golden numbers are float32, a GPU would take halves
    monkeypatch.setattr("sys.argv", ["script.py", *files, *sizes, *arguments])
    runpy.run_path("script.py", run_name="__main__")
    assert capsys.readouterr().out == "0 missing, 62 unexpected\n"
    got, want = np.load("out.npz"), golden(name)
    want.check("pose_enc", torch.from_numpy(got["pose_enc"]))
    want.check("depth", torch.from_numpy(got["depth"][..., 0]))
    assert got["extrinsic"].shape == (14, 3, 4)
    assert got["intrinsic"].shape == (14, 3, 3)
    assert "images" not in got
