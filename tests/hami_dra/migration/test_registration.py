"""The registration is made from the policy, and webhook and guard look at the same pods."""

from hami_dra.migration import Policy
from hami_dra.migration.registration import (
    claim_webhook_configuration,
    guard,
    webhook_configuration,
)


def test_the_guard_refuses_what_the_webhook_is_called_for() -> None:
    [hook] = webhook_configuration(Policy(), {"url": "https://example.com"})["webhooks"]
    admission, binding = guard(Policy())

    spec = admission["spec"]
    assert spec["validations"][0]["expression"] == f"!({hook['matchConditions'][0]['expression']})"
    assert spec["matchConstraints"]["resourceRules"] == hook["rules"]
    for selector in ("namespaceSelector", "objectSelector"):
        assert spec["matchConstraints"][selector] == hook[selector]
    assert binding["spec"]["policyName"] == admission["metadata"]["name"]


def test_pods_of_a_family_without_a_class_do_not_depend_on_us() -> None:
    policy = Policy.model_validate({"families": ["nvidia", "enflame"]})

    [hook] = webhook_configuration(policy, {"url": "https://example.com"})["webhooks"]

    assert "nvidia.com/gpu" in hook["matchConditions"][0]["expression"]
    assert "enflame.com" not in hook["matchConditions"][0]["expression"]


def test_zero_of_a_share_counts_where_a_share_alone_gets_a_card() -> None:
    def zeros(**family: object) -> str:
        policy = Policy.model_validate({"families": [family]})
        [hook] = webhook_configuration(policy, {"url": "https://example.com"})["webhooks"]
        expression: str = hook["matchConditions"][0]["expression"]
        _, _, found = expression.partition('!= "0"')
        return found

    assert '"nvidia.com/gpumem"' in zeros()
    assert '"nvidia.com/gpu"' not in zeros()
    assert "nvidia.com" not in zeros(defaultCount=0)


def test_an_outage_never_opens_the_door_and_a_dry_run_is_one() -> None:
    [hook] = webhook_configuration(Policy(), {"url": "https://example.com"})["webhooks"]

    assert hook["failurePolicy"] == "Fail"
    assert hook["sideEffects"] == "NoneOnDryRun"
    assert hook["reinvocationPolicy"] == "IfNeeded"
    assert [rule["operations"] for rule in hook["rules"]] == [["CREATE"]]


def test_claims_of_our_classes_are_judged_whoever_writes_them_and_whatever_their_labels() -> None:
    policy = Policy.model_validate(
        {"families": [{"migDeviceClass": "mig.example.com"}, "enflame", "hygon-dcu"]}
    )
    [pods] = webhook_configuration(policy, {"url": "https://example.com"})["webhooks"]

    [hook] = claim_webhook_configuration(policy, {"url": "https://example.com"})["webhooks"]

    [condition] = hook["matchConditions"]
    classes = '["dra.hygon.com", "hami-core-gpu.project-hami.io", "mig.example.com"]'
    assert condition["expression"].count(classes) == 2
    assert "objectSelector" not in hook
    assert hook["namespaceSelector"] == pods["namespaceSelector"]
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Fail", "NoneOnDryRun")
    [rule] = hook["rules"]
    assert (rule["resources"], rule["operations"]) == (["resourceclaims"], ["CREATE"])
