"""Generation by block diffusion: whole blocks are denoised, drafts are revised; a mode beside the autoregressive one."""
