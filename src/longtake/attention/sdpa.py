"""The portable fast path: torch's fused attention kernels, asked for their log-sum-exp."""

import torch

from longtake.attention.backend import Attended, Keys, Queries
from longtake.attention.reference import ReferenceBackend


class SdpaBackend:
    """Fused kernels on CPU and CUDA; on other devices, where torch does not return log-sum-exp, the reference."""

    name = "sdpa"

    def __init__(self) -> None:
        self._elsewhere = ReferenceBackend()

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        if q.device.type not in ("cpu", "cuda"):
            return self._elsewhere.attend(q, k, v)
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        if q.device.type == "cpu":
            values, log_sum_exp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads_first)
        elif q.dtype in (torch.bfloat16, torch.float16):
            values, log_sum_exp, *_ = torch.ops.aten._scaled_dot_product_flash_attention(*heads_first)
        else:
            values, log_sum_exp, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
                *heads_first, attn_bias=None, compute_log_sumexp=True
            )
        return Attended(values.transpose(1, 2), log_sum_exp[..., : q.shape[1]].transpose(1, 2))
