"""Target and drafter models, their key-value cache, and the loading of their checkpoints."""
