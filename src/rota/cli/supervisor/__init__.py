"""Worker processes under a parent that starts, watches and scales them."""
