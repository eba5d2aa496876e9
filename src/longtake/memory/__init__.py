"""A bounded, transactional memory of keys and values that any streaming transformer can use."""
