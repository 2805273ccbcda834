"""An API server double that speaks the real wire on loopback: list, watch, create, replace, faults.

It stores what it is given, orders everything by one resource version and keeps an event log, so a
client meets the same races as with the real one. It checks no schema; the real one does.
"""

import asyncio
import copy
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from hami_dra.migration import Json

API = "/apis/resource.k8s.io/v1"
TEMPLATES = f"{API}/resourceclaimtemplates"
SLICES = f"{API}/resourceslices"

LIMITS = "/api/v1/limitranges"

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"

EVENTS = "/apis/events.k8s.io/v1"

_GROUPS = (API, EVENTS, REGISTRATION, "/apis/apps/v1", "/apis/batch/v1", "/api/v1")
_KINDS = {
    *("pods", "replicationcontrollers", "podtemplates", "resourceclaims", "jobs", "cronjobs"),
    *("deployments", "replicasets", "statefulsets", "daemonsets"),
    "events",
    "configmaps",
    "limitranges",
    "mutatingwebhookconfigurations",
    "nodes",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourcequotas",
    "resourceslices",
    "secrets",
    "validatingwebhookconfigurations",
}

_A_NAMESPACE = 2  # parts of the path of one


class ApiDouble:
    """The double and its switches.

    Attributes:
        calls: every request, as `METHOD path` or `WATCH path`.
        faults: answers to give instead of the right one, by call, first come first served.
        namespaces_missing: namespaces in which nothing can be created.
        on_store: what the server does to an object before it stores it.
        before: what some other client does just before a call is served, by call; once.
        gate: creations and replacements wait until this is set.
        token: the bearer token that requests must carry, when not empty.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.faults: dict[str, deque[tuple[int, bytes]]] = {}
        self.namespaces_missing: set[str] = set()
        self.on_store: Callable[[Json], Json] = copy.deepcopy
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.token = ""
        self.url = ""
        self.arrived = asyncio.Condition()
        self.bookmarks = True
        self._objects: dict[tuple[str, str, str], Json] = {}
        self._log: list[tuple[int, str, Json]] = []
        self._version = 100
        self._oldest = 0
        self._changed = asyncio.Condition()
        self._epoch = 0
        self._ending = b""

    def count(self, call: str) -> int:
        """Tell how often a call was made."""
        return self.calls.count(call)

    async def called(self, call: str, times: int) -> None:
        """Wait until a call was made so many times."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: self.count(call) >= times)

    def fail(self, call: str, status: int, body: Json | bytes | None = None) -> None:
        """Answer the next such call with this instead."""
        found = body if body is not None else status_object(status, "Fault", "injected")
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.faults.setdefault(call, deque()).append((status, text))

    async def put(self, kind: str, item: Json) -> Json:
        """Store an object as some other client would."""
        metadata = item["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        stored = self.on_store(item)
        self._version += 1
        stored["metadata"]["resourceVersion"] = str(self._version)
        await self._record("MODIFIED" if key in self._objects else "ADDED", key, stored)
        self._objects[key] = stored
        return stored

    async def remove(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object as some other client would."""
        key = (kind, namespace, name)
        gone = copy.deepcopy(self._objects.pop(key))
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        await self._record("DELETED", key, gone)

    def names(self) -> list[tuple[str, str, str]]:
        """Return kind, namespace and name of all that is stored."""
        return sorted(self._objects)

    def found(self, kind: str, namespace: str, name: str) -> Json:
        """Return what is stored."""
        return self._objects[(kind, namespace, name)]

    def all(self, kind: str) -> list[Json]:
        """Return everything of a kind that is stored."""
        return [item for (each, _, _), item in self._objects.items() if each == kind]

    def forget_history(self) -> None:
        """Compact: watches from before now get 410."""
        self._oldest = self._version
        self._log.clear()

    async def end_streams(self, ending: bytes = b"") -> None:
        """End all watches in good order, or with bytes and then a cut connection."""
        async with self._changed:
            self._ending = ending
            self._epoch += 1
            self._changed.notify_all()

    async def _record(self, kind: str, key: tuple[str, str, str], item: Json) -> None:
        async with self._changed:
            self._log.append((self._version, kind, {"kind": key[0], "object": item}))
            self._changed.notify_all()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one request."""
        watching = request.query.get("watch") == "true"
        call = f"{'WATCH' if watching else request.method} {request.path}"
        async with self.arrived:
            self.calls.append(call)
            self.arrived.notify_all()
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized", "no")
        if meddle := self.before.pop(call, None):
            await meddle()
        if waiting := self.faults.get(call):
            status, body = waiting.popleft()
            return web.Response(status=status, body=body, content_type="application/json")
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "37+"})
        return await self._route(request, watching=watching)

    async def _route(self, request: web.BaseRequest, *, watching: bool) -> web.StreamResponse:
        [group] = [each for each in _GROUPS if request.path.startswith(f"{each}/")] or [""]
        parts = request.path.removeprefix(f"{group}/").split("/")
        if parts[0] == "namespaces" and len(parts) == _A_NAMESPACE:
            return web.json_response({"metadata": {"name": parts[1], "uid": f"uid-{parts[1]}"}})
        namespace = parts[1] if parts[0] == "namespaces" else ""
        kind, *rest = parts[2:] if namespace else parts
        if kind not in _KINDS:
            return _status(404, "NotFound", "the server could not find the requested resource")
        if watching:
            return await self._watch(request, kind)
        if rest:
            return await self._one(request, (kind, namespace, rest[0]))
        if request.method == "POST":
            return await self._create(request, kind, namespace)
        return self._list(request, kind, namespace)

    def _list(self, request: web.BaseRequest, kind: str, namespace: str) -> web.Response:
        every = sorted(self._objects.items())
        items = [o for (k, n, _), o in every if k == kind and namespace in {"", n}]
        items = [o for o in items if _selected(request, o)]
        if "PartialObjectMetadataList" in request.headers["Accept"]:
            items = [{"metadata": item["metadata"]} for item in items]
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query.get("limit", "500"))
        metadata = {"resourceVersion": str(self._version)}
        if end < len(items):
            metadata["continue"] = str(end)
        return web.json_response({"metadata": metadata, "items": items[start:end]})

    async def _create(self, request: web.BaseRequest, kind: str, namespace: str) -> web.Response:
        item = await request.json()
        await self.gate.wait()
        if namespace in self.namespaces_missing:
            return _status(404, "NotFound", f'namespaces "{namespace}" not found')
        if (kind, namespace, item["metadata"]["name"]) in self._objects:
            return _status(409, "AlreadyExists", "already exists")
        return web.json_response(await self.put(kind, item), status=201)

    async def _one(self, request: web.BaseRequest, key: tuple[str, str, str]) -> web.Response:
        if key not in self._objects:
            return _status(404, "NotFound", f"{key[2]} not found")
        if request.method == "PUT":
            item = await request.json()
            await self.gate.wait()
            sent, stored = item["metadata"], self._objects[key]["metadata"]
            if sent.get("resourceVersion") != stored["resourceVersion"]:
                return _status(409, "Conflict", "the object has been modified")
            await self.put(key[0], item)
        if request.method == "PATCH":
            return await self._merge(await request.json(), key)
        if request.method == "DELETE":
            options = json.loads(await request.text() or "null")
            if not _met(options, self._objects[key]["metadata"]):
                return _status(409, "Conflict", "the precondition does not hold")
            await self.remove(*key)
            return _status(200, "", "")
        return web.json_response(self._objects[key])

    async def _merge(self, patch: Json, key: tuple[str, str, str]) -> web.Response:
        """Apply a merge patch of annotations, the only one that is sent."""
        merged = copy.deepcopy(self._objects[key])
        metadata, wanted = merged["metadata"], patch["metadata"]
        if (
            wanted.get("resourceVersion", metadata["resourceVersion"])
            != metadata["resourceVersion"]
        ):
            return _status(409, "Conflict", "the object has been modified")
        metadata["annotations"] = {
            name: value
            for name, value in {
                **metadata.get("annotations", {}),
                **wanted["annotations"],
            }.items()
            if value is not None
        }
        return web.json_response(await self.put(key[0], merged))

    async def _watch(self, request: web.BaseRequest, kind: str) -> web.StreamResponse:
        position = int(request.query["resourceVersion"])
        if position < self._oldest:
            return _status(410, "Expired", "too old resource version")
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        epoch = self._epoch
        while True:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self._version > position or self._epoch != epoch  # noqa: B023
                )
            if self._epoch != epoch:
                break
            for event in self._events(request, kind, position):
                await stream.write(json.dumps(event).encode() + b"\n")
            position = self._version
        if self._ending:
            await stream.write(self._ending)
            assert request.transport is not None
            request.transport.abort()
        return stream

    def _events(self, request: web.BaseRequest, kind: str, position: int) -> list[Json]:
        news = [
            {"type": type_, "object": entry["object"]}
            for version, type_, entry in self._log
            if version > position and entry["kind"] == kind and _selected(request, entry["object"])
        ]
        mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}}
        return [*news, mark] if self.bookmarks else news

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ApiDouble"]:
        """Listen on loopback."""
        runner = web.ServerRunner(web.Server(self.handle), shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.gate.set()
            await self.end_streams()
            await runner.cleanup()

    def write_kubeconfig(self, path: Path, user: Json | None = None) -> Path:
        """Write a kubeconfig that leads here."""
        named = {"name": "double"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "double",
            "clusters": [{**named, "cluster": {"server": self.url}}],
            "users": [{**named, "user": user or {}}],
            "contexts": [{**named, "context": {"cluster": "double", "user": "double"}}],
        }
        path.write_text(json.dumps(config))
        return path


def _met(options: Json | None, metadata: Json) -> bool:
    wanted = (options or {}).get("preconditions") or {}
    return all(metadata.get(name) == value for name, value in wanted.items())


def _selected(request: web.BaseRequest, item: Json) -> bool:
    pairs = request.query.get("labelSelector", "").split(",")
    for name, _, value in (pair.partition("=") for pair in pairs):
        if name and item["metadata"].get("labels", {}).get(name) != value:
            return False
    fields = request.query.get("fieldSelector", "")
    return all(_has(item, field) for field in fields.split(",") if field)


def _has(item: Json, field: str) -> bool:
    path, _, wanted = field.partition("=")
    part, name = path.split(".")
    return bool(item.get(part, {}).get(name) == wanted)


def status_object(code: int, reason: str, message: str) -> Json:
    """Build the Status that Kubernetes answers with."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": {"name": "x"},
    }


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(status_object(code, reason, message), status=code)
