"""What goes wrong in the lab, as errors a person can act on."""


class LabError(Exception):
    """The lab cannot go on; the message says what was found, expected and to do."""


class ComponentError(LabError):
    """A component ended although it should run.

    Attributes:
        name: the component.
        code: its exit code; negative is the signal that ended it.
        log_tail: the last lines of its log.
    """

    def __init__(self, name: str, code: int, log_tail: str) -> None:
        super().__init__(name, code, log_tail)
        self.name = name
        self.code = code
        self.log_tail = log_tail

    def __str__(self) -> str:
        """Render with the log below, since the reason stands there."""
        return f"{self.name}: ended with code {self.code}; its log ends with:\n{self.log_tail}"


class KubectlError(LabError):
    """kubectl refused or failed.

    Attributes:
        argv: the arguments after `kubectl`.
        code: its exit code.
        stderr: what it said.
    """

    def __init__(self, argv: tuple[str, ...], code: int, stderr: str) -> None:
        super().__init__(argv, code, stderr)
        self.argv = argv
        self.code = code
        self.stderr = stderr

    def __str__(self) -> str:
        """Render the command and its complaint."""
        return f"kubectl {' '.join(self.argv)}: exit code {self.code}: {self.stderr.strip()}"
