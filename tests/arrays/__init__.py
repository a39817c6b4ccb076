"""NumPy arrays on stores."""
