"""Leave the peers' own scripts out of the collection: they import the peers, and run elsewhere."""

collect_ignore = ["forager_process.py", "peer_process.py"]
