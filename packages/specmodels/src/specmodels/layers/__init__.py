"""Building blocks that every model of this package shares."""

from specmodels.layers.linear import Linear
from specmodels.layers.mlp import SwiGLU
from specmodels.layers.norm import RMSNorm
from specmodels.layers.rope import Rope, RopeConfig

__all__ = ["Linear", "RMSNorm", "Rope", "RopeConfig", "SwiGLU"]
