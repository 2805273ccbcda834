"""Reviews as the API server sends them."""

import base64
import json
from typing import Any

import httpx
import jsonpatch
from fastapi import FastAPI

from hami_dra.migration import Json


def gpu_pod(name: str = "trainer", **limits: str) -> Json:
    """Build a pod with one container and these nvidia.com limits."""
    amounts = {f"nvidia.com/{key}": value for key, value in limits.items()}
    main = {"name": "main", "image": "x", "resources": {"limits": amounts}}
    return {"metadata": {"name": name}, "spec": {"containers": [main]}}


def review_of(pod: Json, **request: Any) -> Json:  # noqa: ANN401 - any JSON
    """Build the review of a pod's creation; keywords replace fields of the request."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "team",
            "operation": "CREATE",
            "userInfo": {"username": "someone"},
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


async def post(app: FastAPI, body: Json | bytes, *, path: str = "/mutate") -> httpx.Response:
    """Send a review to an application without a network."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://webhook") as client:
        return await client.post(path, content=content)


async def get(app: FastAPI, path: str) -> httpx.Response:
    """Read a page of an application without a network."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://webhook") as client:
        return await client.get(path)


def answer_of(response: httpx.Response) -> Json:
    """Return the review's answer, after checking its envelope."""
    assert response.status_code == 200
    review: Json = response.json()
    assert review["apiVersion"] == "admission.k8s.io/v1"
    assert review["kind"] == "AdmissionReview"
    answer: Json = review["response"]
    assert ("patch" in answer) == ("patchType" in answer)
    return answer


def patched(pod: Json, answer: Json) -> Json:
    """Apply the answer's patch to the pod."""
    operations = json.loads(base64.b64decode(answer["patch"]))
    result: Json = jsonpatch.apply_patch(pod, operations)
    return result
