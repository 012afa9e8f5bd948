"""Which tokens a step reads: mixture, packing, order, and the loader that gathers them."""
