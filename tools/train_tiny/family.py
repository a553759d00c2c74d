"""Shapes and places of the embedded family: what the scripts of this folder share."""

from dataclasses import replace
from pathlib import Path

from specmodels.dflash import DFlashConfig, LayerKind
from specmodels.layers.rope import RopeConfig
from specmodels.llada2 import Llada2Config
from specmodels.qwen3 import Qwen3Config

DATA = Path("packages/spectiny/src/spectiny/data")
TARGET_FOLDER = DATA / "qwen3-tiny"
DRAFTER_FOLDER = DATA / "qwen3-tiny-dflash"
LLADA_FOLDERS = {"flash": DATA / "llada-tiny", "mini": DATA / "llada-tiny-mini"}
RECORDS = DATA / "records"
BUILD = Path("build/tiny")
SOURCES = (Path("packages/specmodels/src"), Path("packages/spectrain/src"), Path("tools/train_tiny"))

SEED = 0

VOCABULARY = 2_048
END_OF_TEXT = 2_044  # <|endoftext|>: bos and padding
IM_END = 2_046  # <|im_end|>: the end of a response
MASK = 2_047  # <|mask|>

ROPE = RopeConfig(theta=10_000.0)
MAX_POSITIONS = 1_024

TARGET = Qwen3Config(
    vocab_size=VOCABULARY,
    hidden_size=192,
    intermediate_size=384,
    num_layers=4,
    num_heads=6,
    num_kv_heads=2,
    head_dim=32,
    norm_eps=1e-6,
    rope=ROPE,
    max_positions=MAX_POSITIONS,
    qk_norm=True,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    tie_embeddings=True,
)

DRAFTER = DFlashConfig(
    hidden_size=192,
    intermediate_size=384,
    num_heads=6,
    num_kv_heads=2,
    head_dim=32,
    norm_eps=1e-6,
    rope=ROPE,
    max_positions=MAX_POSITIONS,
    layers=(LayerKind(window=None, causal=False),) * 2,
    attention_bias=False,
    block_size=16,
    mask_token_id=MASK,
    target_layers=(0, 1, 2),
    target_hidden_size=192,
    shifted=False,
)

# the target's layers with experts beside their feed-forward blocks; heads rotate as a whole, as the target's do
LLADA_FLASH = Llada2Config(
    vocab_size=VOCABULARY,
    hidden_size=192,
    intermediate_size=384,
    num_layers=4,
    dense_layers=1,
    num_heads=6,
    num_kv_heads=2,
    head_dim=32,
    rotary_dim=32,
    norm_eps=1e-6,
    rope=ROPE,
    max_positions=MAX_POSITIONS,
    qk_norm=True,
    num_experts=8,
    expert_size=32,
    experts_per_row=2,
    shared_experts=12,
    expert_groups=4,
    groups_per_row=2,
    routed_scale=2.5,
    normalise_routing=True,
    mask_token_id=MASK,
)
LLADA_MINI = replace(LLADA_FLASH, num_layers=2)
