"""Leave the peer's own script out of the collection: it imports the peer's loaderx, and runs elsewhere."""

collect_ignore = ["peer_process.py"]
