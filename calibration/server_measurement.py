"""A measurement of a running server: streams of tokens instead of engine steps, in a folder of the same kind."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rollsim.calibration.measured_steps import half_range
from rollsim.calibration.measurement import Measurement
from rollsim.calibration.sweep import REFERENCE
from rollsim.traces.schema import TABLES, build

LEVEL = "request"


class ServerMeasurement(Measurement):
    """See `Measurement`; its manifest says ``level: request``."""

    def add(self, name: str, run: dict[str, Any]) -> None:
        """Keep a run of a batch: as its recording, or as one repeat more."""
        kept = self.recording(name)
        self.keep(name, run if kept is None else kept | {"repeats": kept["repeats"] + run["repeats"]})

    def tables(self) -> dict[str, pa.Table]:
        """Responses, with times in seconds since their run of a batch began; gauges, since the first run did."""
        recordings = self.recordings()
        return {"rollouts": _rollouts(recordings), "gauges": _gauges(recordings, self.manifest["limits"]["num_blocks"])}

    def noise(self) -> tuple[float, int] | None:
        """As `measured_steps.noise`."""
        reference = self.recording(REFERENCE)
        return half_range(np.array([makespan_s(repeat) for repeat in reference["repeats"]] if reference else []))


def runs(recordings: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each repeat of each batch: name of the run, recording, repeat."""
    for name, recording in recordings.items():
        for number, repeat in enumerate(recording["repeats"]):
            yield f"{name}/{number}", recording, repeat


def makespan_s(repeat: Mapping[str, Any]) -> float:
    """From the first request of a run to its last token [s]."""
    streams = repeat["streams"].values()
    return max(stream["at_s"][-1] for stream in streams) - min(stream["submit_s"] for stream in streams)


def _rollouts(recordings: Mapping[str, Any]) -> pa.Table:
    names = (
        "run_id", "group_id", "sample_id", "prompt_tokens", "output_tokens", "finish_reason", "max_output_tokens",
        "t_submit_s", "t_first_token_s", "t_end_s",
    )  # fmt: skip
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for run, recording, repeat in runs(recordings):
        groups: dict[str, int] = {}
        for request in recording["requests"]:
            stream = repeat["streams"][request["id"]]
            row = (
                run, groups.setdefault(request["group"] or request["id"], len(groups)), request["id"],
                request["prompt_tokens"], stream["tokens"][-1], stream["reason"], request["output_tokens"],
                stream["submit_s"], stream["at_s"][0], stream["at_s"][-1],
            )  # fmt: skip
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
    made: dict[str, Any] = {
        name: pa.array(values, TABLES["rollouts"].field(name).type) for name, values in columns.items()
    }
    truncated = pa.array([reason == "length" for reason in columns["finish_reason"]], pa.bool_())
    return build("rollouts", made | {"framework": "vllm", "status": "finished", "is_truncated": truncated})


def _gauges(recordings: Mapping[str, Any], blocks: int | None) -> pa.Table:
    all_runs = [repeat for _, _, repeat in runs(recordings)]
    first_s = min((repeat["began_unix_s"] for repeat in all_runs), default=0.0)
    rows = sorted(
        (repeat["began_unix_s"] - first_s + at_s, *values) for repeat in all_runs for at_s, *values in repeat["gauges"]
    )
    table = np.array([[np.nan if value is None else value for value in row] for row in rows], dtype=float).reshape(
        -1, 5
    )
    all_blocks = np.full(len(table), float(blocks or np.nan))
    columns = {
        "running": table[:, 1],
        "waiting": table[:, 2],
        "kv_used_blocks": np.rint(table[:, 3] * all_blocks),
        "kv_total_blocks": all_blocks,
        "output_tokens": table[:, 4],
    }
    known = {name: np.ma.masked_invalid(values) for name, values in columns.items()}
    return build("gauges", known | {"t_s": table[:, 0], "replica": np.zeros(len(table), np.int64)})
