"""The golden cases: one folder a pod, with what becomes of it.

`pod.yaml` and, where they matter, `policy.yaml` and `cards.yaml` go in. `expected.yaml` (templates,
then the pod) and `notices.txt` come out, or `rejected.txt`. `pytest --update` rewrites the outputs.
"""

from io import StringIO
from pathlib import Path

import jsonpatch
import pytest
from ruamel.yaml import YAML

from hami_dra.migration import Cards, Json, Policy, RejectedPod, migrate

CASES = Path(__file__).parents[2] / "cases"


def read(path: Path) -> Json:
    document: Json = YAML(typ="safe").load(path) if path.exists() else {}
    return document


def outputs(case: Path) -> dict[str, str]:
    """Migrate a case's pod and render every file that should stand beside it."""
    pod = read(case / "pod.yaml")
    policy = Policy.model_validate(read(case / "policy.yaml"))
    cards = Cards(frozenset(read(case / "cards.yaml").get("memory_mib", ())))
    try:
        migration = migrate(pod, policy, cards)
    except RejectedPod as rejected:
        return {"rejected.txt": f"{rejected}\n"}
    documents = [template.manifest() for template in migration.templates]
    documents.append(jsonpatch.apply_patch(pod, migration.patch))
    rendered = {"expected.yaml": render(documents)}
    if migration.notices:
        rendered["notices.txt"] = "".join(f"{notice}\n" for notice in migration.notices)
    return rendered


def render(documents: list[Json]) -> str:
    yaml = YAML()
    yaml.width = 4096
    stream = StringIO()
    yaml.dump_all(documents, stream)
    return stream.getvalue()


@pytest.mark.parametrize("case", sorted(CASES.iterdir()), ids=lambda case: case.name)
def test_case(case: Path, *, pytestconfig: pytest.Config) -> None:
    """The pod becomes exactly what its folder shows, with exactly those notices."""
    found = outputs(case)

    if pytestconfig.getoption("update"):
        for name in ("expected.yaml", "notices.txt", "rejected.txt"):
            (case / name).unlink(missing_ok=True)
        for name, text in found.items():
            (case / name).write_text(text, encoding="utf-8")
    inputs = {"pod.yaml", "policy.yaml", "cards.yaml"}
    stored = {file.name: file.read_text() for file in case.iterdir() if file.name not in inputs}
    assert found == stored
