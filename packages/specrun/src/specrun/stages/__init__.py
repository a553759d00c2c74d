"""The stages of a round in the order of the flow. None imports another; `specrun.step` composes them."""
