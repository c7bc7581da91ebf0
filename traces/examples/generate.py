"""Makes the example traces: ``python -m rollsim.traces.examples.generate``. The same seed gives the same requests."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from rollsim.traces.examples import EXAMPLES

SEED = 20_260_101


def grpo(rng: np.random.Generator, groups: int = 256, group_size: int = 8, cap_tokens: int = 16_384) -> pa.Table:
    """Return one rollout step: every group's prompt and its outputs, lognormal between and within groups.

    Deviations within and between groups are of like size, as in recorded groups of a reasoning model on AIME; outputs
    that would pass the cap stop there.
    """
    prompt_tokens = np.clip(np.round(rng.lognormal(np.log(256), 0.5, groups)), 32, 2_048).astype(np.int32)
    typical = rng.lognormal(np.log(2_500), 0.65, groups)
    output_tokens = np.repeat(typical, group_size) * rng.lognormal(0.0, 0.6, groups * group_size)
    return pa.table(
        {
            "group_id": np.repeat(np.arange(groups, dtype=np.int32), group_size),
            "prompt_tokens": np.repeat(prompt_tokens, group_size),
            "output_tokens": np.clip(np.round(output_tokens), 1, cap_tokens).astype(np.int32),
        }
    )


def online(rng: np.random.Generator, requests: int = 400, rate_per_s: float = 4.0) -> pa.Table:
    """Return requests that arrive at random (exponential gaps), with shorter outputs."""
    return pa.table(
        {
            "request_id": [f"r{number:04d}" for number in range(requests)],
            "arrival_s": np.round(np.cumsum(rng.exponential(1 / rate_per_s, requests)), 3),
            "prompt_tokens": np.clip(np.round(rng.lognormal(np.log(600), 1.0, requests)), 16, 8_192).astype(int),
            "output_tokens": np.clip(np.round(rng.lognormal(np.log(250), 0.9, requests)), 1, 4_096).astype(int),
        }
    )


def main(folder: Path = Path(__file__).parent) -> None:
    """Write the example traces into a folder."""
    streams = np.random.default_rng(SEED).spawn(2)
    pq.write_table(grpo(streams[0]), folder / EXAMPLES["grpo"], compression="zstd")
    options = arrow_csv.WriteOptions(quoting_style="none")
    arrow_csv.write_csv(online(streams[1]), folder / EXAMPLES["online"], options)


if __name__ == "__main__":
    main()
