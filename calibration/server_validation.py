"""A profile against batches of a server that it was not fitted to: when responses began and ended."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rollsim.calibration.server_features import http_way_s
from rollsim.calibration.server_measurement import ServerMeasurement
from rollsim.calibration.validation import FORMAT, SCHEMA_VERSION, Times, metrics, notes, r_squared, verdict
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.profile import Profile
from rollsim.simulator.replay import replay
from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.requests import read_requests


def validate_server(measurement: ServerMeasurement, profile: Profile, tolerance: float) -> dict[str, Any]:
    """Replay every held-out batch as it was sent, add the way over HTTP, and compare.

    Returns
    -------
    dict
        As `validation.validate`; steps are None, for nobody saw them.

    Raises
    ------
    BadInput
        Nothing was held out, or the profile's engine could not take the requests.
    """
    recordings = measurement.recordings()
    held_out = {name: kept for name, kept in recordings.items() if kept["role"] == "held_out"}
    if not held_out:
        message = "no held-out batch was measured"
        raise BadInput(Fault(str(measurement.path), message=message, allowed="a finished measurement"))
    limits = EngineLimits(**measurement.manifest["limits"])
    way_s = http_way_s([kept for kept in recordings.values() if kept["role"] != "held_out"])
    rows, predicted_ends, measured_ends = [], [], []
    for name, kept in held_out.items():
        predicted = [_predicted(kept["requests"], repeat, profile, limits, way_s) for repeat in kept["repeats"]]
        measured = [_measured(kept["requests"], repeat) for repeat in kept["repeats"]]
        predicted_ends += [times.ends_s for times in predicted]
        measured_ends += [times.ends_s for times in measured]
        rows.append(
            {
                "name": name,
                "purpose": kept["purpose"],
                "requests": len(kept["requests"]),
                "repeats": len(kept["repeats"]),
                # Runs differ only by when their requests were sent.
                "metrics": metrics(predicted[0], measured),
            }
        )
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "measurement": str(measurement.path),
        "profile": profile.name,
        "clock": "wall",
        "batches": rows,
        "steps": None,
        "r2": r_squared(np.concatenate(predicted_ends), np.concatenate(measured_ends)),
        "r2_of": "completions",
        **verdict(rows, measurement.noise(), tolerance),
        "notes": notes(measurement.manifest, profile),
    }


def _measured(requests: list[dict[str, Any]], repeat: Mapping[str, Any]) -> Times:
    streams = [repeat["streams"][request["id"]] for request in requests]
    first_s = min(stream["submit_s"] for stream in streams)
    ends_s = np.array([stream["at_s"][-1] for stream in streams]) - first_s
    firsts_s = np.array([stream["at_s"][0] for stream in streams]) - first_s
    return Times(float(ends_s.max()), sum(stream["tokens"][-1] for stream in streams), ends_s, firsts_s)


def _predicted(
    requests: list[dict[str, Any]], repeat: Mapping[str, Any], profile: Profile, limits: EngineLimits, way_s: float
) -> Times:
    groups: dict[str, int] = {}
    table = pa.table(
        {
            "request_id": [request["id"] for request in requests],
            "prompt_tokens": [request["prompt_tokens"] for request in requests],
            "output_tokens": [request["output_tokens"] for request in requests],
            "arrival_s": [repeat["streams"][request["id"]]["submit_s"] for request in requests],
            "group_id": [groups.setdefault(request["group"] or request["id"], len(groups)) for request in requests],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "batch.parquet"
        pq.write_table(table, file)
        trace = read_requests(file)
    rollouts = replay(trace, limits, profile.step_cost(limits)).tables["rollouts"]
    ends_s = rollouts["t_end_s"].to_numpy() + way_s
    firsts_s = rollouts["t_first_token_s"].to_numpy() + way_s
    order = np.argsort([request["id"] for request in requests])
    back = np.argsort(rollouts["sample_id"].to_pylist())
    place = np.empty(len(order), np.int64)
    place[order] = back
    tokens = sum(request["output_tokens"] for request in requests)
    return Times(float(ends_s.max()), tokens, ends_s[place], firsts_s[place])
