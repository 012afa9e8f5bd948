"""Our own lm-eval tasks and the generators of their items."""
