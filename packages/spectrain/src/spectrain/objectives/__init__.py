"""What a run minimises: pure functions of a model's outputs."""
