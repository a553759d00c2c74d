"""Whole runs: a recipe file goes in, a folder with trained weights and what they gained comes out."""
