"""Conditional next-token models over one drafted block, the trees grown from them, and the exact acceptance rules."""
