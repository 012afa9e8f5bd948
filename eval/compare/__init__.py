"""A candidate against a baseline, item by item: which scores differ, by how much, and how sure that is.

Pure functions over the items of two evaluations: nothing here knows of artifacts, torch or lm-eval.
"""
