"""The shape of a LLaDA2 model; pure data, no file is read here."""

from dataclasses import dataclass

from specmodels.layers.rope import RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Llada2Config:
    """A pre-norm decoder whose later layers choose a few of many feed-forward experts for every row."""

    vocab_size: int  # rows of the embedding, padding included
    hidden_size: int
    intermediate_size: int  # inner width of the dense layers
    num_layers: int
    dense_layers: int  # so many first layers have one feed-forward block in place of experts
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int  # first entries of a head that are rotated; the others pass
    norm_eps: float
    rope: RopeConfig
    max_positions: int  # longest sequence in tokens
    qk_norm: bool  # RMSNorm per head on queries and keys
    num_experts: int
    expert_size: int  # inner width of one expert
    experts_per_row: int  # chosen experts
    shared_experts: int  # experts that every row passes, stored as one of their joint width
    expert_groups: int  # experts stand in groups of equal size
    groups_per_row: int  # only experts of so many groups may be chosen
    routed_scale: float  # on the sum of the chosen experts
    normalise_routing: bool  # weights of the chosen experts add up to `routed_scale`
    mask_token_id: int  # stands where a token is still to be found
