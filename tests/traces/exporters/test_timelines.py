"""Timelines: what their formats demand, read back with Perfetto's own definitions, against the tables."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollsim.cli.app import main
from rollsim.traces.exporters.chrome_trace import chrome_lines
from rollsim.traces.exporters.export import export
from rollsim.traces.exporters.perfetto_trace import perfetto_packets
from rollsim.traces.exporters.tracks import Slice, tracks
from rollsim.traces.run import Run
from rollsim.traces.schema import build


@pytest.fixture(scope="module", params=[False, True], ids=["rollouts", "segments"])
def run(request, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["train.steps=4", "train.prompts_per_step=16", f"record.segments={str(request.param).lower()}", "--quiet"]
    with pytest.raises(SystemExit) as end:
        main(["run", "example:async", *words, "--out", str(folder)])
    assert not end.value.code
    return Run.open(folder)


def read(data: bytes):
    """Slices by the path of their track, and counters, from packets; all that the format demands is asserted."""
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    paths, open_slices, slices, counters = {}, defaultdict(list), defaultdict(list), defaultdict(list)
    for i, packet in enumerate(proto.Trace.FromString(data).packet):
        assert packet.IsInitialized()
        assert packet.trusted_packet_sequence_id == 1
        assert bool(packet.sequence_flags) == (i == 0)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in paths
            above = paths[track.parent_uuid] if track.HasField("parent_uuid") else ()
            paths[track.uuid] = (*above, track.name)
            continue
        event = packet.track_event
        path = paths[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            counters[path].append((packet.timestamp, event.double_counter_value))
        elif event.type == event.TYPE_SLICE_BEGIN:
            assert not open_slices[path], "slices of a track overlap"
            assert not slices[path] or slices[path][-1][2] <= packet.timestamp
            open_slices[path].append((event.name, packet.timestamp))
        else:
            name, begun = open_slices[path].pop()
            assert begun <= packet.timestamp
            slices[path].append((name, begun, packet.timestamp))
    assert not any(open_slices.values())
    return slices, counters


def test_perfetto_timeline(run, tmp_path):
    """Steps, versions, trajectories and batches of the tables, in nanoseconds, on tracks of their own."""
    export(run, "perfetto", tmp_path / "t.pftrace")
    slices, counters = read((tmp_path / "t.pftrace").read_bytes())
    steps = run.table("steps").to_pylist()
    assert slices["trainer", "steps"] == [
        (f"step {row['step']}", round(row["t0_s"] * 1e9), round(row["t1_s"] * 1e9)) for row in steps
    ]
    versions = [name for name, _, _ in slices["trainer", "newest version"]]
    assert versions == [f"version {version}" for version in range(1, len(steps))]
    told = run.table("segments" if "segments" in run.tables else "rollouts")
    start = told["t0_s" if "segments" in run.tables else "t_start_s"]
    end = told["t1_s" if "segments" in run.tables else "t_end_s"]
    shown = sum(len(of_track) for path, of_track in slices.items() if path[0] == "rollout")
    assert shown == np.sum(start.is_valid().to_numpy() & end.is_valid().to_numpy())
    gauges = run.table("gauges")
    assert sum(len(of_track) for path, of_track in counters.items() if path[2] == "running") == len(gauges)


def test_a_slot_is_a_row_of_the_batch(run):
    """No more slots than trajectories were there at once."""
    found = [shown for shown in tracks({"rollouts": run.table("rollouts")}) if isinstance(shown, Slice)]
    for replica in {shown.track[1] for shown in found}:
        own = [shown for shown in found if shown.track[1] == replica]
        edges = sorted([(s.t0_s, 1) for s in own] + [(s.t1_s, -1) for s in own])
        assert len({shown.track for shown in own}) == max(np.cumsum([rise for _, rise in edges]))


time = st.none() | st.floats(0, 1e5)
row = st.tuples(st.sampled_from(["0", "1", "é"]), st.none() | st.integers(0, 2), time, time)


@given(st.lists(row, max_size=12), st.lists(st.tuples(st.sampled_from(["a", "b"]), time, time), max_size=8))
def test_any_times(segments, spans):
    """Whatever is null, empty, backwards or at once: what has both times is shown once, and the formats hold."""
    columns = [list(column) for column in zip(*segments, strict=True)] or [[], [], [], []]
    lanes = [list(column) for column in zip(*spans, strict=True)] or [[], [], []]
    tables = {
        "segments": build(
            "segments",
            {
                "sample_id": pa.array(columns[0], pa.string()),
                "replica": pa.array(columns[1], pa.int64()),
                "t0_s": pa.array(columns[2], pa.float64()),
                "t1_s": pa.array(columns[3], pa.float64()),
            },
        ),
        "spans": build(
            "spans",
            {
                "lane": pa.array(lanes[0], pa.string()),
                "t0_s": pa.array(lanes[1], pa.float64()),
                "t1_s": pa.array(lanes[2], pa.float64()),
            },
        ),
    }
    timed = sum(a is not None and b is not None and a <= b for *_, a, b in [*segments, *spans])
    slices, _ = read(b"".join(perfetto_packets(tables)))
    assert sum(map(len, slices.values())) == timed
    assert sum('"ph": "X"' in line for line in chrome_lines(tables)) == timed
