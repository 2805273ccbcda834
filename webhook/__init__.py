"""The admission webhook: bytes in, a migrated pod out."""
