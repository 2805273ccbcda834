"""Each way a review can end has its own status, and no input ends in a failure of ours."""

import asyncio
import json
import logging
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.templates import MemoryTemplates, Outcome, Stored
from hami_dra.migration import Template
from tests.webhook.reviews import answer_of, get, gpu_pod, patched, post, review_of
from webhook.app import LARGEST_BODY, Dependencies, create_app


@pytest.fixture
def templates() -> MemoryTemplates:
    return MemoryTemplates()


@pytest.fixture
def app(templates: MemoryTemplates) -> FastAPI:
    return create_app(Dependencies(templates=templates))


async def test_a_legacy_pod_is_mutated_and_its_template_exists(
    app: FastAPI, templates: MemoryTemplates
) -> None:
    pod = gpu_pod(gpu="1", gpumem="8192")

    answer = answer_of(await post(app, review_of(pod)))

    assert answer["uid"] == "u-1"
    assert answer["allowed"] is True
    assert answer["patchType"] == "JSONPatch"
    result = patched(pod, answer)
    entry = result["spec"]["resourceClaims"][0]
    assert "nvidia.com/gpu" not in json.dumps(result["spec"]["containers"])
    assert list(templates.objects) == [("team", entry["resourceClaimTemplateName"])]


async def test_an_ordinary_pod_is_left_alone(app: FastAPI, templates: MemoryTemplates) -> None:
    answer = answer_of(await post(app, review_of({"spec": {"containers": [{"name": "web"}]}})))

    assert answer == {"uid": "u-1", "allowed": True}
    assert not templates.objects


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"resource": {"group": "apps", "version": "v1", "resource": "pods"}},
        {"subResource": "ephemeralcontainers"},
    ],
)
async def test_anything_but_the_creation_of_a_pod_is_left_alone(
    app: FastAPI, templates: MemoryTemplates, request_: dict[str, Any]
) -> None:
    answer = answer_of(await post(app, review_of(gpu_pod(gpu="1"), **request_)))

    assert answer == {"uid": "u-1", "allowed": True}
    assert not templates.objects


async def test_a_wrong_pod_is_refused_with_its_path(
    app: FastAPI, templates: MemoryTemplates
) -> None:
    answer = answer_of(await post(app, review_of(gpu_pod(gpu="1", gpumem="8Gi"))))

    assert answer["allowed"] is False
    assert answer["status"]["code"] == 422
    assert "spec.containers[0].resources" in answer["status"]["message"]
    assert "patch" not in answer
    assert not templates.objects


async def test_a_dry_run_gets_the_same_patch_and_writes_nothing(
    app: FastAPI, templates: MemoryTemplates
) -> None:
    pod = gpu_pod(gpu="1", gpumem="8192")

    dry = answer_of(await post(app, review_of(pod, dryRun=True)))

    assert not templates.objects
    assert answer_of(await post(app, review_of(pod))) == dry


@pytest.mark.parametrize("dry_run", [False, True])
async def test_what_was_noticed_is_passed_on_unless_nothing_may_be_written(
    templates: MemoryTemplates, *, dry_run: bool
) -> None:
    told: list[tuple[str, str]] = []
    app = create_app(
        Dependencies(
            templates=templates,
            tell=lambda namespace, _pod, notices: told.extend((namespace, n.code) for n in notices),
        )
    )

    await post(app, review_of(gpu_pod(gpu="1", gpucores="120"), dryRun=dry_run))

    assert told == ([] if dry_run else [("team", "CoresClamped")])


async def test_the_namespace_is_the_requests(app: FastAPI, templates: MemoryTemplates) -> None:
    pod = gpu_pod(gpu="1")
    pod["metadata"]["namespace"] = "lies"

    answer_of(await post(app, review_of(pod, namespace="truth")))

    assert [namespace for namespace, _ in templates.objects] == ["truth"]


async def test_notices_become_warnings(app: FastAPI) -> None:
    answer = answer_of(await post(app, review_of(gpu_pod(gpu="1", gpucores="120"))))

    assert any("CoresClamped" in warning for warning in answer["warnings"])


async def test_a_template_with_another_meaning_refuses_the_pod_and_is_named(
    app: FastAPI, templates: MemoryTemplates
) -> None:
    review = review_of(gpu_pod(gpu="1"))
    answer_of(await post(app, review))
    ((_, name),) = templates.objects
    templates.objects[("team", name)] = Stored({"spec": {}})

    answer = answer_of(await post(app, review))

    assert answer["allowed"] is False
    assert answer["status"]["code"] == 409
    assert f"team/{name}" in answer["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"\\ud800"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}',
        json.dumps(review_of({}, namespace="../other")).encode(),
        json.dumps(review_of({}, namespace="")).encode(),
        json.dumps(review_of({}, uid="")).encode(),
        json.dumps(review_of({}, object=[])).encode(),
    ],
)
async def test_what_is_no_review_is_400_with_a_message(app: FastAPI, body: bytes) -> None:
    response = await post(app, body)

    assert response.status_code == 400
    assert "expected" in response.text


async def test_a_message_quotes_no_content(app: FastAPI) -> None:
    response = await post(app, review_of({}, operation={"password": "hunter2"}))

    assert response.status_code == 400
    assert "hunter2" not in response.text


async def test_a_body_at_the_limit_is_read_and_a_larger_one_is_413(app: FastAPI) -> None:
    review = json.dumps(review_of(gpu_pod(gpu="1"))).encode()

    assert (await post(app, review.ljust(LARGEST_BODY))).status_code == 200
    response = await post(app, review.ljust(LARGEST_BODY + 1))

    assert response.status_code == 413
    assert str(LARGEST_BODY) in response.text


@given(body=st.binary(max_size=400))
def test_no_bytes_make_us_fail(body: bytes) -> None:
    app = create_app(Dependencies(templates=MemoryTemplates()))

    assert asyncio.run(post(app, body)).status_code == 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("metadata", "spec", "containers", "initContainers", "resources", "limits"),
                    *("requests", "annotations", "labels", "name", "resourceClaims", "claims"),
                    *("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/use-gputype", "env"),
                    *("hami-dra.io/migration", "securityContext", "privileged", "schedulerName"),
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(document=json_values)
def test_no_json_makes_us_fail(document: object) -> None:
    app = create_app(Dependencies(templates=MemoryTemplates()))

    response = asyncio.run(post(app, json.dumps(document).encode()))

    assert response.status_code == 400


@given(pod=st.dictionaries(st.sampled_from(["metadata", "spec", "kind"]), json_values))
def test_no_pod_makes_us_fail(pod: dict[str, Any]) -> None:
    app = create_app(Dependencies(templates=MemoryTemplates()))

    response = asyncio.run(post(app, review_of(pod)))

    assert response.status_code in {200, 400}


@given(
    container=st.fixed_dictionaries(
        {"name": st.just("main") | json_values, "resources": st.just({}) | json_values},
        optional={"env": json_values, "securityContext": json_values},
    ),
    limits=st.dictionaries(
        st.sampled_from(
            [
                *("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"),
                *("nvidia.com/gpucores", "nvidia.com/priority"),
            ]
        ),
        st.sampled_from(["1", "0", "-1", "1e3", "8Gi", 2, None, True]) | json_values,
    ),
    annotations=json_values
    | st.dictionaries(
        st.sampled_from(["nvidia.com/use-gputype", "hami-dra.io/migration"]), st.text()
    ),
)
def test_no_container_makes_us_fail(
    container: dict[str, Any], limits: dict[str, Any], annotations: object
) -> None:
    app = create_app(Dependencies(templates=MemoryTemplates()))
    whole = {"name": "gpu", "resources": {"limits": limits}}
    pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [whole, container]}}

    response = asyncio.run(post(app, review_of(pod)))

    assert response.status_code in {200, 400}


class _Failing:
    """A template store whose cluster is in trouble."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def holds(self, _namespace: str, _template: Template) -> bool:
        return False

    async def ensure(self, namespace: str, template: Template) -> Outcome:  # noqa: ARG002 - protocol
        """Fail."""
        raise self.error


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ApiError(403, "Forbidden", "may not create"), "403 Forbidden: may not create"),
        (UnreachableError("cut"), "cut"),
        (RuntimeError("password=hunter2"), "RuntimeError"),
    ],
)
async def test_our_own_failures_are_500_and_logged(
    error: Exception, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app = create_app(Dependencies(templates=_Failing(error)))

    response = await post(app, review_of(gpu_pod(gpu="1")))

    assert response.status_code == 500
    # Of any other content type the API server shows "unknown" in its place.
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text == shown
    assert [r.levelname for r in caplog.records if r.message == "review"] == ["ERROR"]
    assert 'decision="error"} 1.0' in (await get(app, "/metrics")).text


async def test_before_it_is_ready_it_says_what_is_missing_and_answers_no_review(
    templates: MemoryTemplates,
) -> None:
    synced = False
    checks = {"certificate": lambda: True, "template cache": lambda: synced}
    app = create_app(Dependencies(templates=templates, checks=checks))

    early = await get(app, "/readyz")
    assert (early.status_code, early.json()) == (503, {"missing": ["template cache"]})
    refused = await post(app, review_of(gpu_pod(gpu="1")))
    # For 503 the API server shows a sentence of its own instead of ours.
    assert refused.status_code == 500
    assert "template cache" in refused.text
    assert (await get(app, "/healthz")).status_code == 200

    synced = True
    late = await get(app, "/readyz")
    assert (late.status_code, late.json()) == (200, {"missing": []})
    assert (await post(app, review_of(gpu_pod(gpu="1")))).status_code == 200


async def test_metrics_count_decisions_and_templates(app: FastAPI) -> None:
    for body in (review_of(gpu_pod(gpu="1")), review_of(gpu_pod(gpu="1")), review_of({}), b"{"):
        await post(app, body)

    lines = (await get(app, "/metrics")).text.splitlines()

    for line in (
        'hami_dra_webhook_reviews_total{decision="mutated"} 2.0',
        'hami_dra_webhook_reviews_total{decision="unchanged"} 1.0',
        'hami_dra_webhook_reviews_total{decision="bad_request"} 1.0',
        'hami_dra_webhook_reviews_total{decision="rejected"} 0.0',
        'hami_dra_webhook_templates_total{outcome="created"} 1.0',
        'hami_dra_webhook_templates_total{outcome="known"} 1.0',
        "hami_dra_webhook_review_seconds_count 4.0",
    ):
        assert line in lines


async def test_one_line_a_review_without_the_pods_contents(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pod = gpu_pod(gpu="1")
    pod["metadata"] = {"generateName": "job-", "annotations": {"a": "hunter2"}}
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter2"}]

    await post(app, review_of(pod))

    (record,) = (r for r in caplog.records if r.name == "webhook.endpoint")
    fields = record.__dict__["fields"]
    assert fields["uid"] == "u-1"
    assert fields["namespace"] == "team"
    assert fields["pod"] == "job-"
    assert fields["decision"] == "mutated"
    assert list(fields["templates"].values()) == [Outcome.CREATED]
    assert fields["microseconds"] > 0
    assert "hunter2" not in repr(record.__dict__)


async def test_reviews_are_posted_and_nothing_else(app: FastAPI) -> None:
    response = await get(app, "/mutate")

    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


async def test_no_page_describes_us(app: FastAPI) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert (await get(app, path)).status_code == 404
