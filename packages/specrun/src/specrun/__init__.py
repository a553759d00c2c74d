"""The engine: a prompt goes in, the target's own text comes out, in fewer target passes than tokens."""
