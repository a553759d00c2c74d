"""LLaDA2 against a public model of the same equations: transformers has no LLaDA2, but GLM-4 MoE has its layers.

Both route by a sigmoid with a bias, in groups, beside a shared expert, after a dense layer, and rotate half a head. The
mask of blocks is given to it, and what it calls its tensors is said here.
"""

import pytest
import torch

from specmodels.kv import RowsMemory
from specmodels.llada2 import block_causal

from doubles.tiny import llada2_config, tiny_llada2

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

# fp32 on logits of size 10: both sides round each of some hundred operations differently
LOGITS = 1e-5


def public(model):
    """Our weights in their model."""
    config = model.config
    theirs = transformers.Glm4MoeForCausalLM(
        transformers.Glm4MoeConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            moe_intermediate_size=config.expert_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": config.rope.theta,
                "partial_rotary_factor": config.rotary_dim / config.head_dim,
            },
            rms_norm_eps=config.norm_eps,
            max_position_embeddings=config.max_positions,
            use_qk_norm=True,
            attention_bias=False,
            tie_word_embeddings=False,
            n_routed_experts=config.num_experts,
            num_experts_per_tok=config.experts_per_row,
            n_shared_experts=config.shared_experts,
            n_group=config.expert_groups,
            topk_group=config.groups_per_row,
            first_k_dense_replace=config.dense_layers,
            routed_scaling_factor=config.routed_scale,
            norm_topk_prob=config.normalise_routing,
            attn_implementation="eager",
        )
    )
    state = theirs.state_dict()
    for name, tensor in renamed(model).items():
        assert state[name].shape == tensor.shape, name
        state[name].copy_(tensor)
        del state[name]
    assert not state, sorted(state)
    return theirs.eval()


def renamed(model):
    config, ours = model.config, model.state_dict()
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    found = {
        "model.embed_tokens.weight": ours["embedding"],
        "model.norm.weight": ours["norm.weight"],
        "lm_head.weight": ours["head.weight"],
    }
    for layer in range(config.num_layers):
        here = {
            name.removeprefix(f"layers.{layer}."): tensor
            for name, tensor in ours.items()
            if name.startswith(f"layers.{layer}.")
        }
        heads = here["attention.qkv.weight"].split([query, kv, kv])
        parts = {
            "input_layernorm.weight": here["attention_norm.weight"],
            "post_attention_layernorm.weight": here["mlp_norm.weight"],
            "self_attn.q_norm.weight": here["attention.query_norm.weight"],
            "self_attn.k_norm.weight": here["attention.key_norm.weight"],
            "self_attn.o_proj.weight": here["attention.output.weight"],
            **{f"self_attn.{kind}_proj.weight": part for kind, part in zip("qkv", heads, strict=True)},
        }
        if layer < config.dense_layers:
            block, at = "mlp.", "mlp."
        else:
            block, at = "mlp.shared.", "mlp.shared_experts."
            parts |= {
                "mlp.gate.weight": here["mlp.router.weight"],
                "mlp.gate.e_score_correction_bias": here["mlp.router.bias"],
                "mlp.experts.gate_up_proj": torch.cat(
                    [here["mlp.experts.gate_EUD"], here["mlp.experts.up_EUD"]], dim=1
                ),
                "mlp.experts.down_proj": here["mlp.experts.down_EDU"],
            }
        gate, up = here[f"{block}gate_up.weight"].chunk(2)
        parts |= {
            f"{at}gate_proj.weight": gate,
            f"{at}up_proj.weight": up,
            f"{at}down_proj.weight": here[f"{block}down.weight"],
        }
        found |= {f"model.layers.{layer}.{name}": tensor for name, tensor in parts.items()}
    return found


@torch.no_grad()
@pytest.mark.parametrize("block", [1, 4, 32])
@pytest.mark.parametrize(
    "changes",
    [{}, {"rotary_dim": 8}, {"normalise_routing": False}, {"expert_groups": 1, "groups_per_row": 1}],
    ids=["published", "whole rotation", "free weights", "no groups"],
)
def test_logits(changes, block):
    ours = tiny_llada2(llada2_config(**changes))
    theirs = public(ours)
    tokens = torch.randint(ours.config.vocab_size, (2, 21))
    place = torch.arange(21).expand(2, 21)
    mask = block_causal(place, place, block)
    addend = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))[:, None]
    expected = theirs(tokens, attention_mask=addend, position_ids=place, use_cache=False).logits
    found = ours.logits(ours(tokens, place, RowsMemory(mask)))
    torch.testing.assert_close(found, expected, atol=LOGITS, rtol=0)
