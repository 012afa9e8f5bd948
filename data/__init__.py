"""Documents and tokens: a library that imports nothing else of this project, and never torch."""
