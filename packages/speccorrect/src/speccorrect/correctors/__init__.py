"""Correction heads, one file each. The folder is the registry: a file's stem is the corrector's name."""
