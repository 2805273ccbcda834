"""An API server that shows the objects of a file and nothing else: reads, pages and refusals."""

import json
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from ruamel.yaml import YAML

from hami_dra.migration import Json

SCENE: Final = Path(__file__).parent / "data" / "audit" / "cluster.yaml"
"""A cluster of several teams."""

_PLURALS: Final = {"ResourceFlavor": "resourceflavors", "Queue": "queues"}
_OF_CLUSTER: Final = frozenset(
    {"ResourceSlice", "ClusterQueue", "ResourceFlavor", "Cohort", "Queue", "Namespace"}
)


def documents(file: Path) -> list[Json]:
    """Read objects."""
    return [each for each in YAML(typ="safe").load_all(file.read_text()) if each]


class ManifestApi(ThreadingHTTPServer):
    """The server.

    Args:
        items: what it shows.
        refused: collections, such as `pods`, that nobody may read.
        page: the most objects in one answer.
    """

    daemon_threads = True

    def __init__(
        self, items: Collection[Json], *, refused: Collection[str] = (), page: int = 500
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refused, self.page = refused, page
        self.asked: list[str] = []
        self.namespaces: dict[str, Json] = {}
        self.by_path: dict[str, list[Json]] = {}
        self.resources: dict[str, dict[str, Json]] = {}
        for item in items:
            self._add(item)

    def _add(self, item: Json) -> None:
        version, kind = item["apiVersion"], item["kind"]
        plural = _PLURALS.get(kind, kind.lower() + "s")
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        self.by_path.setdefault(f"{root}/{plural}", []).append(item)
        namespace = item["metadata"].get("namespace")
        if kind == "Namespace":
            self.namespaces[item["metadata"]["name"]] = item
        if namespace:
            self.namespaces.setdefault(namespace, {"metadata": {"name": namespace}})
            self.by_path.setdefault(f"{root}/namespaces/{namespace}/{plural}", []).append(item)
        self.resources.setdefault(version, {})[kind] = {
            "kind": kind,
            "name": plural,
            "namespaced": kind not in _OF_CLUSTER,
            "verbs": ["get", "list", "watch"],
        }

    def answer(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Json]:
        """Return status and body."""
        self.asked.append(path)
        plural = path.rpartition("/")[2]
        if plural in self.refused:
            return 403, _status("Forbidden", f'{plural} is forbidden: User "viewer" cannot list')
        if (fixed := self._fixed(path, plural)) is not None:
            return 200, fixed
        if "/validatingwebhookconfigurations/" in path or path == f"/api/v1/namespaces/{plural}":
            return 404, _status("NotFound", "not found")
        found = self.by_path.get(path, [])
        if "labelSelector" in query:
            found = [each for each in found if _labelled(each, query["labelSelector"][0])]
        start = int(query.get("continue", ["0"])[0])
        end = start + self.page
        metadata = {"continue": str(end)} if end < len(found) else {}
        without_kind = [
            {k: v for k, v in each.items() if k not in {"apiVersion", "kind"}}
            for each in found[start:end]
        ]
        return 200, {"metadata": metadata, "items": without_kind}

    def _fixed(self, path: str, name: str) -> Json | None:
        """Return what is no list of objects: version, discovery, one namespace."""
        if path == "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
        if path == "/apis":
            return {"groups": self._groups()}
        if path == f"/api/v1/namespaces/{name}":
            return self.namespaces.get(name)
        served = self.resources.get(path.removeprefix("/apis/"))
        return None if served is None else {"resources": list(served.values())}

    def _groups(self) -> list[Json]:
        by_name: dict[str, list[Json]] = {}
        for version in (each for each in self.resources if "/" in each):
            served = {"groupVersion": version}
            by_name.setdefault(version.partition("/")[0], []).append(served)
        return [
            {"name": name, "versions": versions, "preferredVersion": versions[0]}
            for name, versions in by_name.items()
        ]

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here."""
        named = {"name": "production"}
        server = f"http://127.0.0.1:{self.server_port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "production",
            "clusters": [{**named, "cluster": {"server": server}}],
            "users": [{**named, "user": {}}],
            "contexts": [{**named, "context": {"cluster": "production", "user": "production"}}],
        }
        path.write_text(json.dumps(config))
        return path


class _Handler(BaseHTTPRequestHandler):
    server: ManifestApi

    def do_GET(self) -> None:
        """Answer."""
        asked = urlsplit(self.path)
        status, body = self.server.answer(asked.path, parse_qs(asked.query))
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Say nothing."""


@contextmanager
def serving(api: ManifestApi, directory: Path) -> Iterator[Path]:
    """Serve, and yield a kubeconfig that leads there."""
    thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield api.write_kubeconfig(directory / "kubeconfig")
    finally:
        api.shutdown()
        thread.join()
        api.server_close()


def _labelled(item: Json, selector: str) -> bool:
    name, _, value = selector.partition("=")
    return bool((item["metadata"].get("labels") or {}).get(name) == value)


def _status(reason: str, message: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "reason": reason, "message": message}
