"""Log-likelihoods and greedy continuations of a model behind a small protocol."""
