"""Answer requests for the page, the metrics and the probes."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from hami_dra.scraping import metrics_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_HTML: Final = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
)
_JSON: Final = (("Content-Type", "application/json"),)

_Answer = tuple[str, list[tuple[str, str]], bytes]


class Pages:
    """Answers requests, as a WSGI application.

    Args:
        registry: what /metrics shows.
        page: makes what / shows, as its query asks.
        problems: what does not work, by name, which /readyz tells; empty texts for what does.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        page: Callable[[str], str],
        problems: Callable[[], Mapping[str, str]],
    ) -> None:
        self._metrics = metrics_app(registry)
        self._page = page
        self._problems = problems

    def __call__(self, environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        """Answer one request."""
        method = environ["REQUEST_METHOD"]
        status, headers, body = (
            self._found({**environ, "REQUEST_METHOD": "GET"})
            if method in {"GET", "HEAD"}
            else ("405 Method Not Allowed", [*_JSON, ("Allow", "GET, HEAD")], b"")
        )
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    def _found(self, environ: "WSGIEnvironment") -> _Answer:
        match environ.get("PATH_INFO"):
            case "/":
                return "200 OK", list(_HTML), self._page(environ.get("QUERY_STRING", "")).encode()
            case "/metrics":
                return self._scraped(environ)
            case "/healthz":
                return "200 OK", list(_JSON), b'{"ok": true}\n'
            case "/readyz":
                # Ready even so: what cannot be read now must not hide the rest.
                wrong = {name: text for name, text in self._problems().items() if text}
                return "200 OK", list(_JSON), json.dumps({"ok": not wrong, **wrong}).encode()
        text = b'{"error": "found another path than /, /metrics, /healthz and /readyz"}\n'
        return "404 Not Found", list(_JSON), text

    def _scraped(self, environ: "WSGIEnvironment") -> _Answer:
        noted: list[Any] = []

        def start(
            status: str, headers: list[tuple[str, str]], *_: object
        ) -> Callable[[bytes], object]:
            noted.extend((status, headers))
            return noted.append

        body = b"".join(self._metrics(environ, start))
        return noted[0], noted[1], body
