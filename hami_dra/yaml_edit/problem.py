"""What can be wrong with a document, and with an edit of it."""


class SyntaxProblem(Exception):  # noqa: N818 - a problem of the text, not an error of ours
    """The text is not what an API server would accept as a document.

    Attributes:
        line: counted from 1, within the text.
        column: counted from 1.
        reason: what was found, and what was expected.
    """

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(line, column, reason)
        self.line = line
        self.column = column
        self.reason = reason

    def __str__(self) -> str:
        """Render with the place."""
        return f"line {self.line}, column {self.column}: {self.reason}"


class EditError(Exception):
    """The text cannot be changed in place to say what it should; nothing was changed."""
