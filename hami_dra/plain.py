"""Text of others, made fit for a line."""


def plain(text: str) -> str:
    """Keep what others wrote on one line, without control characters."""
    return "".join(each if each.isprintable() else " " for each in text)
