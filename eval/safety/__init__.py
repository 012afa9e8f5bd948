"""Safety: what a model says unasked, whom it disadvantages, and what it gives away of its training text."""
