"""Data shards, objectives and one loop for targets, drafters and correction heads."""
