"""Time, memory and energy: what a model costs whoever runs it."""
