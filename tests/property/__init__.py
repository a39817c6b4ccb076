"""Properties that hold for all inputs, checked on inputs that hypothesis chooses."""
