"""A session finds its cluster, stays authenticated and tells failures apart."""

import asyncio
import base64
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from hami_dra.kube.credentials import _Reread, locate
from hami_dra.kube.errors import (
    ApiError,
    ConfigurationError,
    ConflictError,
    GoneError,
    NotFoundError,
    UnreachableError,
)
from hami_dra.kube.session import JSON_PATCH, Session
from tests.hami_dra.kube.api_double import SLICES, TEMPLATES, ApiDouble


async def test_version_reads_the_numbers(session: Session) -> None:
    assert await session.version() == (1, 37)


async def test_an_odd_version_is_not_believed(api: ApiDouble, session: Session) -> None:
    api.fail("GET /version", 200, {"major": "one"})

    with pytest.raises(UnreachableError, match="not a version"):
        await session.version()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFoundError), (409, ConflictError), (410, GoneError), (403, ApiError)],
)
async def test_refusals_are_told_apart(
    api: ApiDouble, session: Session, status: int, kind: type[ApiError]
) -> None:
    api.fail("DELETE /x", status)

    with pytest.raises(ApiError) as caught:
        await session.delete("/x", options={"preconditions": {"uid": "u"}})

    assert type(caught.value) is kind
    assert caught.value.status == status
    assert caught.value.reason == "Fault"
    assert caught.value.details == {"name": "x"}
    assert str(caught.value) == f"{status} Fault: injected"


async def test_a_refusal_without_a_status_object_still_says_something(
    api: ApiDouble, session: Session
) -> None:
    api.fail("PATCH /x", 502, b"bad gateway, says a proxy")

    with pytest.raises(ApiError, match="502 Bad Gateway: bad gateway, says a proxy"):
        await session.patch("/x", [{"op": "remove", "path": "/a"}], content_type=JSON_PATCH)


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff"])
async def test_an_answer_that_is_no_object_is_no_answer(
    api: ApiDouble, session: Session, body: bytes
) -> None:
    api.fail("GET /x", 200, body)

    with pytest.raises(UnreachableError, match="GET /x"):
        await session.get("/x")


async def test_nobody_listening_is_unreachable(tmp_path: Path) -> None:
    async with ApiDouble().serving() as api:
        config = api.write_kubeconfig(tmp_path / "kubeconfig")

    async with await Session.connect(config) as session:
        with pytest.raises(UnreachableError) as caught:
            await session.version()

    port = api.url.rpartition(":")[2]
    assert str(caught.value) == f"GET /version: 127.0.0.1:{port}: Connection refused"


async def test_a_connection_that_is_cut_is_unreachable(tmp_path: Path) -> None:
    """Its error says in words what happened, and shows no object of the library."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    api = ApiDouble()
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, await Session.connect(api.write_kubeconfig(tmp_path / "k")) as session:
        with pytest.raises(UnreachableError, match=r"^GET /x: Server disconnected$"):
            await session.get("/x")


async def test_a_watch_can_be_left_early(api: ApiDouble, session: Session) -> None:
    stream = session.watch(TEMPLATES, resource_version="0")
    item = {"metadata": {"name": "t", "namespace": "n"}, "spec": {}}
    await api.put("resourceclaimtemplates", item)

    async with aclosing(stream) as events:
        event = await anext(aiter(events))

    assert event["type"] == "ADDED"


async def test_exec_credentials_are_renewed_through_the_hook(
    api: ApiDouble, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    credential = tmp_path / "credential.json"

    def issue(name: str) -> None:
        api.token = name
        status = {"token": name, "expirationTimestamp": "2020-01-01T00:00:00Z"}
        credential.write_text(
            json.dumps(
                {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "kind": "ExecCredential",
                    "status": status,
                }
            )
        )
        token.write_text(name)

    issue("first")
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(credential)],
    }
    config = api.write_kubeconfig(tmp_path / "kubeconfig", {"exec": plugin})
    async with await Session.connect(config) as session:
        await session.version()
        issue("second")
        with pytest.raises(ApiError, match="401"):
            await session.version()
        hook = session._client.configuration.refresh_api_key_hook  # noqa: SLF001 - move its clock
        hook._clock = lambda: hook._read_at + 61  # noqa: SLF001 - see above

        assert await session.version() == (1, 37)


@pytest.mark.parametrize("command", ["false", "no-such-plugin"])
async def test_an_exec_plugin_that_fails_makes_nobody_of_us(
    api: ApiDouble, tmp_path: Path, command: str
) -> None:
    """The library goes on without credentials, and the API server tells of system:anonymous."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command}
    config = api.write_kubeconfig(tmp_path / "kubeconfig", {"exec": plugin})

    with pytest.raises(ConfigurationError, match="exec plugin gave no credentials"):
        await Session.connect(config)


async def test_credentials_are_read_once_a_minute_at_most() -> None:
    now = 0.0
    reads = []

    async def load(configuration: str) -> None:
        reads.append(configuration)

    reread = _Reread(load, clock=lambda: now)
    for now in (59.0, 60.0, 61.0, 119.0, 120.0):  # noqa: B007 - the clock above reads it
        await reread("c")

    assert len(reads) == 2


def test_an_explicit_kubeconfig_wins(tmp_path: Path) -> None:
    config = tmp_path / "mine"
    config.touch()

    found = locate(config, None, environ={"KUBERNETES_SERVICE_HOST": "x"}, home=tmp_path)

    assert found.kubeconfig == str(config)


def test_an_explicit_kubeconfig_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        locate(tmp_path / "none", None, environ={}, home=tmp_path)


def test_what_is_no_file_is_no_kubeconfig(tmp_path: Path) -> None:
    """A pipe would be read twice, and a directory that nobody may enter is no traceback."""
    too_long = tmp_path / ("x" * 300)

    with pytest.raises(ConfigurationError, match="it is no file"):
        locate(Path("/dev/null"), None, environ={}, home=tmp_path)
    with pytest.raises(ConfigurationError, match="File name too long"):
        locate(too_long, None, environ={}, home=tmp_path)
    with pytest.raises(ConfigurationError, match="no file that can be read"):
        locate(None, None, environ={"KUBECONFIG": str(too_long)}, home=tmp_path)


def test_the_environment_comes_before_the_pod(tmp_path: Path) -> None:
    config = tmp_path / "mine"
    config.touch()
    named = f"/nowhere:{config}"
    environ = {"KUBECONFIG": named, "KUBERNETES_SERVICE_HOST": "x"}

    assert locate(None, None, environ=environ, home=tmp_path).kubeconfig == named


def test_the_pod_comes_before_the_home(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    environ = {"KUBERNETES_SERVICE_HOST": "x"}

    assert locate(None, None, environ=environ, home=tmp_path).kubeconfig == ""
    assert locate(None, "c", environ=environ, home=tmp_path).kubeconfig
    assert locate(None, None, environ={}, home=tmp_path).kubeconfig


def test_the_home_is_not_meant_where_the_environment_names_a_file_that_is_gone(
    tmp_path: Path,
) -> None:
    """As kubectl does, so that nobody changes another cluster than the one that was named."""
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()

    with pytest.raises(ConfigurationError, match="not asked where KUBECONFIG is set"):
        locate(None, None, environ={"KUBECONFIG": "/gone"}, home=tmp_path)


def test_finding_no_cluster_lists_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        locate(None, None, environ={"KUBECONFIG": "/gone"}, home=tmp_path)

    for word in ("--kubeconfig", "/gone", "service account", str(tmp_path / ".kube")):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "expected a kubeconfig; TypeError"),
        (b"[]", "expected a kubeconfig; "),
        (b"a: b", "Expected key current-context"),
        (b"{", "expected a kubeconfig; ParserError: while parsing a flow node"),
        (b"contexts: 3", "expected a kubeconfig; TypeError"),
        (b"\x7fELF\xff" * 9999, "found bytes that are not UTF-8, expected a kubeconfig"),
    ],
)
async def test_a_damaged_kubeconfig_is_named(tmp_path: Path, text: bytes, said: str) -> None:
    config = tmp_path / "damaged"
    config.write_bytes(text)

    with pytest.raises(ConfigurationError) as caught:
        await Session.connect(config)

    assert str(caught.value).startswith(f"could not use {config}: ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()[0]) == len(str(caught.value)) < 500


async def test_a_context_that_is_not_there_is_named(api: ApiDouble, tmp_path: Path) -> None:
    config = api.write_kubeconfig(tmp_path / "kubeconfig")

    with pytest.raises(ConfigurationError, match=r"found no context 'c'; kubectl config get-con"):
        await Session.connect(config, "c")


async def test_an_authority_that_is_no_certificate_is_told(tmp_path: Path) -> None:
    config = ApiDouble().write_kubeconfig(tmp_path / "kubeconfig")
    found = json.loads(config.read_text())
    junk = base64.b64encode(b"junk").decode()
    found["clusters"][0]["cluster"] = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": junk,
    }
    config.write_text(json.dumps(found))

    with pytest.raises(ConfigurationError, match=r"could not use .*certificate"):
        await Session.connect(config)


async def test_objects_are_created_replaced_and_deleted(session: Session) -> None:
    item = {"metadata": {"name": "s"}, "spec": {"a": 1}}

    stored = await session.create(SLICES, item)
    stored["spec"]["a"] = 2
    replaced = await session.replace(f"{SLICES}/s", stored)

    assert replaced["spec"] == {"a": 2}
    assert await session.get(f"{SLICES}/s") == replaced
    await session.delete(f"{SLICES}/s")
    with pytest.raises(NotFoundError):
        await session.get(f"{SLICES}/s")
