"""Streams: a published known answer, independence, no dependence on order or shape, speed."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rollsim.simulator.rng import LIMITS, Streams, philox4x32
from rollsim.traces.errors import BadInput

N = 200_000
KEYS = st.tuples(*(st.integers(0, limit - 1) for limit in LIMITS.values()))


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ([0] * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_cipher_gives_the_known_answers_of_random123(counter, key, answer):
    out = philox4x32([np.array([word], np.uint64) for word in counter], key)
    assert " ".join(f"{int(word[0]):08x}" for word in out) == answer


def test_numbers_stay_what_they_are_across_versions():
    drawn = Streams(7).uniform("length", np.arange(3), visit=1, sample=2, attempt=3, turn=4)
    assert drawn.tolist() == [0.851297676667809, 0.5940487280409762, 0.5947967502231134]
    assert Streams(7).uniform("length", 5).shape == ()


@given(keys=st.lists(KEYS, min_size=1, max_size=20), data=st.data())
def test_order_and_shape_of_a_call_do_not_matter(keys, data):
    columns = dict(zip(LIMITS, np.array(keys, np.int64).T, strict=True))
    streams = Streams(3)
    together = streams.uniform("a", **columns)
    order = np.array(data.draw(st.permutations(range(len(keys)))))
    assert np.array_equal(streams.uniform("a", **{k: v[order] for k, v in columns.items()}), together[order])
    streams.uniform("b", np.arange(10))
    alone = [float(streams.uniform("a", *key)) for key in keys]
    assert alone == together.tolist()
    assert (together > 0).all()
    assert (together < 1).all()


def test_it_broadcasts_and_chunks_do_not_show():
    prompts, samples = np.arange(3000)[:, None], np.arange(8)
    grid = Streams(1).uniform("a", prompts, sample=samples)
    assert grid.shape == (3000, 8)
    assert np.array_equal(grid[1500], Streams(1).uniform("a", 1500, sample=samples))


def blocks() -> dict[str, np.ndarray]:
    """Sequences that must each be uniform and independent of the others: along each key, over streams and seeds."""
    streams, index = Streams(0), np.arange(N)
    along = {name: {name: index % limit} for name, limit in LIMITS.items() if limit >= N}
    made = {f"along {name}": streams.uniform("a", **({"prompt": 1} | keys)) for name, keys in along.items()}
    made["visit and attempt"] = streams.uniform("a", 9, visit=index % 500, attempt=index // 500)
    made["grid"] = streams.uniform("a", index // 8, sample=index % 8)
    made["other name"] = streams.uniform("b", index // 8, sample=index % 8)
    made["other seed"] = Streams(1).uniform("a", index // 8, sample=index % 8)
    made["high prompts"] = streams.uniform("a", index + 2**31)
    return made


def test_uniformity_and_serial_independence():
    for name, u in blocks().items():
        cells = np.bincount((u * 256).astype(int), minlength=256)
        assert stats.chisquare(cells).pvalue > 1e-4, name
        assert stats.kstest(u, "uniform").pvalue > 1e-4, name
        pairs = np.bincount((u[:-1:2] * 16).astype(int) * 16 + (u[1::2] * 16).astype(int), minlength=256)
        assert stats.chisquare(pairs).pvalue > 1e-4, name
        low_bits = np.bincount((u * 2.0**52).astype(np.int64) & 255, minlength=256)
        assert stats.chisquare(low_bits).pvalue > 1e-4, name


def test_streams_seeds_and_keys_are_uncorrelated():
    made = {name: u - 0.5 for name, u in blocks().items()}
    for (first, u), (second, v) in itertools.combinations(made.items(), 2):
        assert abs(np.corrcoef(u, v)[0, 1]) * N**0.5 < 4.5, (first, second)
    for name, u in made.items():
        for lag in (1, 2, 8, 64):
            assert abs(np.corrcoef(u[:-lag], u[lag:])[0, 1]) * N**0.5 < 4.5, (name, lag)


def test_no_two_keys_give_the_same_number():
    u = Streams(0).uniform("a", np.arange(1000)[:, None], sample=np.arange(100))
    assert len(np.unique(u)) >= u.size - 1


def test_normals_are_the_normal_quantiles():
    z = Streams(0).normal("a", np.arange(N))
    assert stats.kstest(z, "norm").pvalue > 1e-4
    assert np.allclose(stats.norm.cdf(z), Streams(0).uniform("a", np.arange(N)))


@pytest.mark.parametrize(("keys", "says"), [({"prompt": -1}, "prompt"), ({"prompt": 0, "visit": 2**16}, "visit")])
def test_keys_out_of_range_are_refused(keys, says):
    with pytest.raises(ValueError, match=says):
        Streams(0).uniform("a", **keys)


def test_keys_that_are_not_whole_are_refused():
    with pytest.raises(ValueError, match="whole"):
        Streams(0).uniform("a", 1.5)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, "1"])
def test_a_wrong_seed_is_refused(seed):
    with pytest.raises(BadInput, match="seed"):
        Streams(seed)


def test_it_draws_millions_a_second():
    index = np.arange(1_000_000)
    best = min(_seconds(index) for _ in range(3))
    assert best < 0.5, f"{1 / best:.1f} million a second"


def _seconds(index: np.ndarray) -> float:
    start = time.process_time()
    Streams(0).uniform("a", index // 8, sample=index % 8)
    return time.process_time() - start
