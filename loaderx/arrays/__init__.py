"""NumPy on a store: dtypes, shapes, index forms, ragged batches, and writing whole arrays."""
