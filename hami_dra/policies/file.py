"""Load a policy file, or say everything that is wrong with it at once."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from hami_dra.migration import Family, Json, Policy
from hami_dra.policies.naming import impossible_names
from hami_dra.policies.problem import FieldPath, PolicyFileError, Problem, dotted, found
from hami_dra.policies.text import Written, read_yaml
from hami_dra.policies.wording import coercions, problems_of

API_VERSION: Final = "hami-dra.io/v1alpha1"
"""The `apiVersion` of a policy file."""

KIND: Final = "Policy"
"""Its `kind`."""

HEADER: Final = {"apiVersion": API_VERSION, "kind": KIND}
"""What every policy file starts with."""


def load(path: Path) -> Policy:
    """Read a policy from a file.

    Raises:
        PolicyFileError: if the file cannot be read, or says what no policy can say.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = f"{error.strerror}; name a readable policy file"
        raise PolicyFileError(str(path), (), reason) from error
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8; save it as UTF-8"
        raise PolicyFileError(str(path), (), reason) from error
    return parse(text, str(path))


def parse(text: str, source: str) -> Policy:
    """Read a policy from text; `source` is its name in messages.

    Raises:
        PolicyFileError: if it says what no policy can say.
    """
    written = read_yaml(text, source)
    if not isinstance(written.value, dict):
        message = f"{found(written.value)}, expected a policy; start with apiVersion: {API_VERSION}"
        raise PolicyFileError(source, [Problem(1, (), message)])
    policy, wrong = _understood(written)
    problems = [Problem(written.line(path), path, message) for path, message in wrong]
    # One for each place: what could not be read is no value of its field either.
    told = {(problem.line, problem.path) for problem in written.problems}
    problems = [each for each in problems if (each.line, each.path) not in told]
    problems += written.problems
    if policy is None or problems:
        raise PolicyFileError(source, problems)
    return policy


def document(policy: Policy) -> Json:
    """Return a policy as the content of a file, every field written out."""
    return {**HEADER, **policy.model_dump(mode="json", by_alias=True)}


def _understood(written: Written) -> tuple[Policy | None, list[tuple[FieldPath, str]]]:
    """Return the policy, if there is one, and what is wrong."""
    wrong = list(_header_problems(written.value))
    fields = {key: member for key, member in written.value.items() if key not in HEADER}
    try:
        policy = _validated(fields)
    except ValidationError as error:
        problems = list(problems_of(error, written.numbers))
        if all(path == () for path, _ in problems):  # each family is right, all together are not
            problems = list(clashes(_families_alone(fields))) or problems
        return None, [*wrong, *problems]
    wrong += coercions(fields, policy.model_dump(mode="json", by_alias=True))
    wrong += clashes(policy.families)
    wrong += impossible_names(policy)
    return policy, wrong


def _validated(fields: Json) -> Policy:
    # Field names of the code, in snake case, are unknown keys of the file.
    return Policy.model_validate(fields, by_alias=True, by_name=False)


def _families_alone(fields: Json) -> tuple[Family, ...]:
    return tuple(_validated({"families": [each]}).families[0] for each in fields["families"])


def _header_problems(value: Json) -> Iterator[tuple[FieldPath, str]]:
    for key, expected in HEADER.items():
        if key not in value:
            yield (), f"missing {key}; write {key}: {expected}"
        elif value[key] != expected:
            yield (key,), f"{found(value[key])}, expected {expected}"


def clashes(families: Sequence[Family]) -> Iterator[tuple[FieldPath, str]]:
    """Yield resources and names that two families claim, so that neither could be told apart."""
    owners: dict[str, FieldPath] = {}
    names: dict[str, FieldPath] = {}
    for index, family in enumerate(families):
        here: FieldPath = ("families", index)
        if family.name in names:
            taken = dotted(names[family.name])
            yield (*here, "name"), f"found {family.name!r}, which is the name of {taken} too"
            continue
        names.setdefault(family.name, here)
        for path, resource in _claimed(family, here):
            if resource in owners:
                taken = dotted(owners[resource])
                yield path, f"found {resource!r}, which is {taken} already; give each its own"
            owners.setdefault(resource, path)


def _claimed(family: Family, here: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    for key, resource in family.resources.model_dump(by_alias=True).items():
        if resource:
            yield (*here, "resources", key), resource
