"""Listen for the errors that NVIDIA's driver reports of cards, in a thread that waits in NVML."""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

_WAIT_MS: Final = 5000

_log = logging.getLogger(__name__)


class Listener:
    """One thread that listens to cards; told which by one thread at a time.

    Args:
        nvml: NVIDIA's binding.
        note: told, in that thread, of the UUID of a card and its XID.
    """

    def __init__(
        self,
        nvml: Any,  # noqa: ANN401 - an untyped binding
        note: Callable[[str, int], None],
    ) -> None:
        self._nvml = nvml
        self._note = note
        self._uuids: Sequence[str] = ()
        self._deaf: set[str] = set()  # cards of which no event can be had
        self._thread: threading.Thread | None = None
        self._is_ending = threading.Event()

    def listen(self, uuids: Sequence[str]) -> None:
        """Listen to these cards, also after NVML has ended; it must be open."""
        self._uuids = uuids
        if all(uuid in self._deaf for uuid in uuids):
            return
        if self._thread is None or not self._thread.is_alive():
            self._is_ending.clear()
            self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Have nobody in NVML, which must not be shut down under a call."""
        self._is_ending.set()
        if self._thread is not None:
            self._thread.join(2 * _WAIT_MS / 1000)

    def _run(self) -> None:
        """Note errors until NVML ends."""
        nvml = self._nvml
        events: object = None
        try:
            events = nvml.nvmlEventSetCreate()
            heard: set[str] = set()
            while not self._is_ending.is_set() and self._register(events, heard):
                self._hear(events)
        except nvml.NVMLError as error:
            _log.info("no more events of cards: %s", error)
        finally:
            if events is not None:
                with contextlib.suppress(nvml.NVMLError):
                    nvml.nvmlEventSetFree(events)

    def _register(self, events: object, heard: set[str]) -> bool:
        """Listen to the cards that are not heard yet; tell whether any is."""
        nvml = self._nvml
        for uuid in [uuid for uuid in self._uuids if uuid not in heard | self._deaf]:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError_NotSupported:
                _log.info("card %s reports no errors; it is looked at now and then", uuid)
                self._deaf.add(uuid)
            except nvml.NVMLError as error:
                _log.debug("card %s is not listened to: %s", uuid, error)
            else:
                heard.add(uuid)
        return bool(heard)

    def _hear(self, events: object) -> None:
        nvml = self._nvml
        try:
            event = nvml.nvmlEventSetWait_v2(events, _WAIT_MS)
            uuid = as_text(nvml.nvmlDeviceGetUUID(event.device))
        except nvml.NVMLError_Timeout:
            return
        self._note(uuid, int(event.eventData))


def as_text(value: object) -> str:
    """Return a text of the binding, which some of its releases give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
