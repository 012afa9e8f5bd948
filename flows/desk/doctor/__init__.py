"""Says what a desk misses or has wrong, and what to do about it."""
