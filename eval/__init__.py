"""Judging models: suites as data, a scorer, bits per byte, charts. Knows no checkpoint and no stage."""
