"""The shape of a DFlash drafter; pure data, no file is read here."""

from dataclasses import dataclass

from specmodels.layers.rope import RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """How one drafter layer sees: over which distance, and whether inside the block only backwards."""

    window: int | None  # rows on either side that stay visible; None is unlimited
    causal: bool  # inside the block a row sees itself and earlier rows only


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvConfig:
    """The convolution around each sublayer of DFlash 2."""

    taps: int  # rows that one row mixes, itself included
    group: int  # channels that share the part of the kernel that a row chooses; divides the width


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashConfig:
    """A block-diffusion drafter (arXiv 2602.06036) that borrows the target's embedding and head."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    max_positions: int  # longest sequence in tokens
    layers: tuple[LayerKind, ...]
    attention_bias: bool
    block_size: int  # rows of a block, anchor included
    mask_token_id: int
    target_layers: tuple[
        int, ...
    ]  # 0-based layers of the target whose outputs are the features, in this order
    target_hidden_size: int
    shifted: bool  # row k scores the token after position anchor + k; otherwise the token at anchor + k
    embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    softcap: float | None = None  # logits become c * tanh(logits / c), after the multiplier
    draft_vocab_size: int | None = None  # rows of the drafter's own head; None borrows the target's
    conv: ConvConfig | None = None  # None is DFlash 1

    @property
    def num_drafted(self) -> int:
        """Tokens that one block proposes."""
        return self.block_size if self.shifted else self.block_size - 1
