"""Small stores, kept as bytes, that every later version must read."""
