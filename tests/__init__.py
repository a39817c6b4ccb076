"""The tests of loaderx: they check promises against NumPy, a slow reader (`tests.oracle`) and the real 0.7.3."""
