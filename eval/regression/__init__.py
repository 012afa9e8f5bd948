"""What is asked of every checkpoint so that a model that got worse shows at once."""
