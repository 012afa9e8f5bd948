"""Looks after the flow runs, every few seconds: the dead, the crashed, the silent; and after the disk."""
