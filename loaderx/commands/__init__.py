"""The commands of ``python -m loaderx``, one a file.

A command is a module with ``DESCRIPTION`` (the head of its ``--help``), ``add_arguments(parser)`` and
``run(options)``, which returns the exit code. `loaderx.__main__` lists them and `loaderx.commands.program` runs
them.
"""
