"""The long tail: what is asked in an unusual form, place or order, and texts at the edge of what a model can take."""
