"""What our kernels may stand for, and that they hold no model any longer than its owner does."""

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRotaryEmbedding

from longtake.language.fused_network import FusedNetwork, why_not_fused
from longtake.language.load import LanguageModel

pytest.importorskip("triton", reason="needs Triton")


def test_phases_of_another_kind_are_left_to_the_librarys_own_modules(tiny_language: LanguageModel) -> None:
    assert why_not_fused(tiny_language.model, torch.float16) is None
    stretched: Any = copy.deepcopy(tiny_language.model)
    text = stretched.config.text_config
    text.rope_parameters = {
        **text.rope_parameters,
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    rotary = stretched.model.language_model.rotary_emb = Qwen2_5_VLRotaryEmbedding(text)
    assert not torch.equal(rotary.inv_freq, tiny_language.model.model.language_model.rotary_emb.inv_freq)
    assert "yarn" in str(why_not_fused(stretched, torch.float16))


def test_what_is_not_computed_is_named(tiny_language: LanguageModel) -> None:
    model: Any = copy.deepcopy(tiny_language.model)
    model.config.vision_config.hidden_act = "gelu"
    assert "gelu" in str(why_not_fused(model, torch.float16))
    model.config.text_config.hidden_size = 48 * model.config.text_config.num_attention_heads
    assert "48" in str(why_not_fused(model, torch.float16))


def test_weights_go_with_their_model_without_waiting_for_a_collection(tiny_language: LanguageModel) -> None:
    model: Any = copy.deepcopy(tiny_language.model)
    gc.collect()
    gc.disable()
    try:
        network, layer = FusedNetwork(model, tiny_language.text), weakref.ref(model.model.language_model.layers[0])
        network._picture(4, 4)
        del model, network
        assert layer() is None
    finally:
        gc.enable()
