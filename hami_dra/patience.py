"""Wait for something that may hang, such as a driver, no longer than bearable."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class HangsError(Exception):
    """It did not answer in time."""


class Patience(Generic[Answer]):
    """Calls one function, never twice at one time; for one thread.

    Args:
        call: may take for ever.
        timeout_s: how long to wait for it.
    """

    def __init__(self, call: Callable[[], Answer], timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s
        self._pending: _Pending[Answer] | None = None

    def ask(self) -> Answer:
        """Return what the function returns, or raise what it raises.

        Raises:
            HangsError: if it takes longer; the next question waits for the same call.
        """
        pending = self._pending or _Pending(self._call)
        self._pending = pending
        if not pending.done.wait(self._timeout_s):
            raise HangsError(f"no answer within {self._timeout_s:g} s")
        self._pending = None
        return pending.result()


class _Pending(Generic[Answer]):
    """One call in a thread of its own, which nobody can end."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self.done = threading.Event()
        self._call = call
        self._answers: list[Answer] = []
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="patience", daemon=True).start()

    def _run(self) -> None:
        try:
            self._answers.append(self._call())
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            self._error = error
        self.done.set()

    def result(self) -> Answer:
        if self._error is not None:
            raise self._error
        return self._answers[0]
