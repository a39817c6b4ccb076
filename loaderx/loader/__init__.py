"""Endless, resumable sequences of batches: which records come next, and the loader that brings them."""
