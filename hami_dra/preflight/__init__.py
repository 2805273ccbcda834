"""Is this cluster ready? Facts about it, judged by pure functions on what was collected."""
