"""X.509 for the webhook and the lab; knows nothing of the rest of the product."""
