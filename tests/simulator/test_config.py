"""The config of a run: what it refuses, all at once."""

import pytest

from rollsim.simulator.config import Config, parse, read_document
from rollsim.traces.errors import BadInput

GOOD = {
    "model": {"profile": "qwen3-8b-h100-tp1-bf16"},
    "cluster": {"gpus": 16},
    "train": {"steps": 8, "prompts_per_step": 16},
    "workload": {"trace": "example:grpo"},
}


def faults(document, **options):
    with pytest.raises(BadInput) as error:
        parse(document, "c.yaml", **options)
    return [str(fault) for fault in error.value.faults]


def test_defaults_are_synchronous_on_shared_gpus():
    policies = parse(GOOD).built_policies()
    assert policies.synchronous
    assert policies.hard_eta is None


def test_a_dump_is_the_same_config():
    config = parse(GOOD | {"policies": {"routing": "least_load"}})
    assert parse(config.model_dump(mode="json")) == config


def test_it_cannot_be_changed():
    config = parse(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        config.train.steps = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_every_fault_of_every_section():
    found = faults(
        {
            "model": {},
            "cluster": {"gpus": 0},
            "train": {"steps": 1, "prompts_per_step": 1, "publish": "stepp"},
            "synk": {},
            "workload": {"trase": "x"},
            "policies": {"routing": "leest_load", "admision": "fixed_batch"},
        }
    )
    for word in (
        "model.profile: missing",
        "cluster.gpus",
        "did you mean 'step'",
        "did you mean 'sync'",
        "did you mean 'trace'",
        "did you mean 'least_load'",
        "did you mean 'admission'",
    ):
        assert any(word in line for line in found), word
    assert all(line.startswith("c.yaml: ") for line in found)


def test_more_mini_batches_than_trajectories():
    train = {"steps": 1, "prompts_per_step": 2, "samples_per_prompt": 3, "mini_batches": 7}
    (found,) = faults(GOOD | {"train": train})
    assert "1 to 6" in found
    assert parse(GOOD | {"train": train | {"mini_batches": 6}}).train.mini_batches == 6


def test_a_split_leaves_no_role_without_gpus():
    document = GOOD | {"policies": {"allocation": {"use": "static_split", "rollout_gpus": 16}}}
    (found,) = faults(document)
    assert "16 rollout + 0 train GPUs" in found
    assert isinstance(parse(document, shares=False), Config)


def test_shared_gpus_need_policies_that_wait():
    (found,) = faults(GOOD | {"policies": {"admission": {"use": "staleness_quota", "eta": 1}}})
    assert "shared GPUs cannot generate while they train" in found
    parse(GOOD | {"policies": {"admission": {"use": "staleness_quota", "eta": 0}}})


def test_documents_that_are_none(tmp_path):
    (tmp_path / "train.yaml").write_text("- 1\n")
    with pytest.raises(BadInput, match="not a config"):
        read_document(tmp_path / "train.yaml")
    with pytest.raises(BadInput, match=r"train\.yaml'\?"):
        read_document(tmp_path / "trian.yaml")
    (tmp_path / "train.yaml").write_text("a: [\n")
    with pytest.raises(BadInput, match="line 2"):
        read_document(tmp_path / "train.yaml")
    with pytest.raises(BadInput, match="cannot be read"):
        read_document(tmp_path)
