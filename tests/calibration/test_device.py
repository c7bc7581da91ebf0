"""Train steps and transfers: known shares and lines come back, what cannot be timed is told, profiles take the rest."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollsim.calibration import train_timing
from rollsim.calibration.device_report import training_text, transfers_text
from rollsim.calibration.device_session import with_section
from rollsim.calibration.engine_faults import EngineUnfit
from rollsim.calibration.train_fit import fit_training
from rollsim.calibration.train_timing import HELD_OUT, Point, time_training
from rollsim.calibration.transfer_fit import fit_line, fit_transfers
from rollsim.cli.app import main
from rollsim.simulator.profile_store import load_profile
from rollsim.traces.errors import BadInput

SHAPE = SimpleNamespace(layers=2, heads=4, kv_heads=2, head_dim=16, hidden=64, vocab=500)
PARAMETERS = 1_000_000
PEAK, MFU, ATTENTION, FORWARD = 1e12, 0.4, 0.2, 0.5
WEIGHT_FLOPS = 2.0 * (PARAMETERS - SHAPE.vocab * SHAPE.hidden)
ATTENTION_FLOPS = 2.0 * SHAPE.layers * SHAPE.heads * SHAPE.head_dim


@dataclass
class KnownTimer:
    """A device that reaches known shares of its peak, until it runs out of memory."""

    most_tokens: int = 1 << 20
    noise: float = 0.0
    name: str = "tiny"
    parameters: int = PARAMETERS
    shape: SimpleNamespace = field(default_factory=lambda: SHAPE)
    on_gpu: bool = False

    def __post_init__(self):
        self._rng = np.random.default_rng(0)

    def _s(self, point: Point, share: float, passes: float) -> float:
        if point.tokens > self.most_tokens:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")
        count = point.tokens // point.length
        weights = WEIGHT_FLOPS * point.tokens / (PEAK * share)
        attention = ATTENTION_FLOPS * count * point.length**2 / (PEAK * ATTENTION)
        return passes * (weights + attention) * (1 + self.noise * self._rng.standard_normal())

    def gradients_s(self, point: Point) -> float:
        return self._s(point, MFU, 3 + point.recompute)

    def forward_s(self, point: Point) -> float:
        return self._s(point, FORWARD, 1)

    def optimizer_s(self) -> tuple[float, int]:
        return 0.003, 1_000_000

    def peak_flops(self) -> float:
        return PEAK


@pytest.fixture(autouse=True)
def _no_torch(monkeypatch):
    monkeypatch.setattr(train_timing, "import_torch", lambda: SimpleNamespace(__version__="2"))


def timed(**settings):
    return time_training(Path("tiny"), minutes=1, timer=lambda _: KnownTimer(**settings))


def test_known_shares_come_back():
    document = fit_training(timed())
    found = {name: value["value"] for name, value in document["train"].items()}
    assert found == pytest.approx({"mfu": MFU, "attention_mfu": ATTENTION, "forward_mfu": FORWARD}, rel=1e-6)
    assert {value["grade"] for value in document["train"].values()} == {"fitted"}
    assert document["errors"]["gradients, held out"]["worst"] < 1e-6
    assert document["optimizer_bytes_per_s"] == pytest.approx(30e6 / 0.003)
    assert document["stopped"] is None


def test_noise_moves_them_little_and_held_out_batches_say_how_much():
    document = fit_training(timed(noise=0.03))
    assert document["train"]["mfu"]["value"] == pytest.approx(MFU, rel=0.05)
    assert 0 < document["errors"]["gradients, held out"]["median"] < 0.06
    held_out = [point for point in document["points"] if point["tokens"] // point["length"] == HELD_OUT]
    assert document["errors"]["gradients, held out"]["n"] == len(held_out)
    shown = training_text(document)
    assert max(map(len, shown.splitlines())) <= 80


def test_what_does_not_fit_the_memory_is_told_and_the_rest_kept():
    document = timed(most_tokens=1_024)
    assert {point["tokens"] for point in document["points"]} == {256, 1_024}
    assert document["stopped"] == "4,096 tokens do not fit the memory"
    with pytest.raises(EngineUnfit, match="256 tokens do not fit"):
        time_training(Path("tiny"), minutes=1, timer=lambda _: _Small())


class _Small(KnownTimer):
    """Only the reference fits."""

    def forward_s(self, point: Point) -> float:
        raise RuntimeError("out of memory")


def test_no_time_is_told():
    document = time_training(Path("tiny"), minutes=1e-9, timer=lambda _: KnownTimer())
    assert {point["tokens"] for point in document["points"]} == {256}
    assert "longer than the time" in document["stopped"]


def test_times_that_no_device_can_have_are_refused():
    told = timed()
    told["peak_flops"] = PEAK / 10
    with pytest.raises(BadInput, match="no such device"):
        fit_training(told)


def test_flops_count_as_the_profile_counts_them():
    """For a profile of that model its own parameters count, as in a run."""
    model = load_profile("qwen3-8b-h100-tp1-bf16").model
    same = model.model_copy(
        update={"hf_name": "tiny", "layers": 2, "heads": 4, "head_dim": 16, "parameters": PARAMETERS}
    )
    told = timed()
    found, other = (fit_training(told, which)["train"]["mfu"]["value"] for which in (same, None))
    assert found / other == pytest.approx(2 * PARAMETERS / WEIGHT_FLOPS)


@given(
    fixed_s=st.floats(1e-6, 1e-3),
    rate=st.floats(1e8, 1e12),
    sizes=st.lists(st.integers(10, 30), min_size=3, max_size=8, unique=True),
)
def test_a_line_comes_back(fixed_s, rate, sizes):
    found = fit_line(size := np.array(sorted(1 << power for power in sizes), float), fixed_s + size / rate)
    np.testing.assert_allclose(found[0] + size / found[1], fixed_s + size / rate, rtol=1e-6)


def test_seconds_that_do_not_grow_have_no_rate():
    assert fit_line(np.array([1e3, 1e6]), np.array([1.0, 1.0]))[1] == float("inf")


def transfers(backend: str = "nccl", copies: tuple[str, ...] = ("pinned_to_device", "device_to_pinned")):
    sizes = [1 << power for power in range(16, 31, 2)]
    seconds = [1e-5 + size / 50e9 for size in sizes]
    timings = {name: {"sizes": sizes, "seconds": seconds} for name in copies}
    timings["broadcast"] = {"sizes": sizes, "seconds": seconds, "backend": backend, "ranks": 2}
    timings["all_reduce"] = {"not_timed": "did not answer", "backend": backend, "ranks": 2}
    return fit_transfers({"device": {"name": "a GPU"}, "devices": 2, "torch": "2", "timings": timings})


def test_transfers_of_gpus_become_part_of_a_profile():
    document = transfers()
    profile = load_profile("qwen3-8b-h100-tp1-bf16")
    changed = with_section(profile, document)
    assert changed.sync.paths["nccl"].bytes_per_s.value == pytest.approx(50e9)
    assert changed.sync.paths["nccl"].fixed_s.value == pytest.approx(1e-5)
    assert changed.sync.host_bytes_per_s.value == pytest.approx(50e9)
    assert changed.model_copy(update={"sync": profile.sync}) == profile
    shown = transfers_text(document)
    assert "not timed: did not answer" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_transfers_of_a_cpu_change_no_profile():
    document = transfers("gloo", ("host_to_host",))
    assert document["sync"] == {}
    profile = load_profile("qwen3-8b-h100-tp1-bf16")
    assert with_section(profile, document) == profile
    assert "no cluster's" in transfers_text(document)


def test_train_shares_become_part_of_a_profile():
    profile = load_profile("qwen3-8b-h100-tp1-bf16")
    changed = with_section(profile, fit_training(timed()))
    assert changed.train.mfu.value == pytest.approx(MFU)
    assert changed.train.link_bytes_per_s is None
    assert changed.model_copy(update={"train": profile.train}) == profile


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "none"), "config.json cannot be read"),
        (("train", "none", "--out", "t.txt"), "*.json"),
        (("train", "none", "--into", "qwen3-8b-h100-tp1-bf16"), "a shipped profile stays"),
        (("train", "none", "--into", "none.json"), "none.json"),
        (("sync", "--out", "no/where.json"), "no such folder"),
    ],
)
def test_bad_words(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rollsim.calibration.train_timing.import_torch", lambda: SimpleNamespace(cuda=None))
    monkeypatch.setattr(train_timing.TrainTimer, "__init__", lambda self, model: train_timing.read_shape(model))
    with pytest.raises(SystemExit) as end:
        main(["calibrate", *words])
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert said in err
    assert "Traceback" not in err
