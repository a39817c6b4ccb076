"""A directory of byte records: the format, the files, and every way to read and change them."""
