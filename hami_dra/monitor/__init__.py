"""Shows what the cards of one node are used for, to Prometheus and to people."""
