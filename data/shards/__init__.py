"""Tokens on disk: written whole, indexed, checked, and read through a memory map or from a store."""
