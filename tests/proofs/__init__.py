"""Proofs that a store loses nothing: every operation cut off, every write that a power loss may drop or reorder."""
