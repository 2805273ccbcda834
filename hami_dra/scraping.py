"""Show metrics to whoever scrapes, whatever he says about forms that nobody knows."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def metrics_app(registry: CollectorRegistry) -> "WSGIApplication":
    """Return a WSGI application that shows a registry, in the form that is asked for or as text.

    It shows all of it, as HAMi does: choosing by `name[]` would find no series of a collector that
    does not know beforehand what there is.
    """
    shown = make_wsgi_app(registry)

    def answer(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        accepted = _understood(environ.get("HTTP_ACCEPT", ""))
        found: Iterable[bytes] = shown(
            {**environ, "HTTP_ACCEPT": accepted, "QUERY_STRING": ""}, start
        )
        return found

    return answer


def _understood(accepted: str) -> str:
    """Return what is accepted, or nothing if the library cannot read it."""
    try:
        choose_encoder(accepted)
    except (TypeError, ValueError):  # of a version that is no number
        return ""
    return accepted
