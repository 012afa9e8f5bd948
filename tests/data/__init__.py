"""Tests of the data library."""
