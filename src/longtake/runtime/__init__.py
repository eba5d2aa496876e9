"""Sessions: a model, a memory and the clocks of one video."""
