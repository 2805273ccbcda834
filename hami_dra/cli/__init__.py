"""The `hami-dra` command: the webhook's conversion, offline."""
