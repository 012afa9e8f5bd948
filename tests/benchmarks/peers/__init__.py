"""What `make bench-tokens` runs in processes of their own: this project, and the tools that it is compared with.

A peer's script runs in that peer's environment under .bench/ and imports nothing of this project but `measured`.
"""
