"""Request traces that ship with the package.

grpo.parquet        One GRPO-like rollout step: 256 groups of 8, all at t = 0, long-tailed outputs with a cap.
online.csv          Requests that arrive one after the other, as a serving engine sees them.
generate            Makes both.
arithmetic.parquet  What a real model did: 240 sums, differences and products, 8 responses to each, all at t = 0, by
                    SmolLM2-135M-Instruct at temperature 1 on vLLM 0.32.0 (CPU build, one compute thread, 64 requests at
                    once, 512 tokens at most): lengths, rewards, times. Made by
                    `rollsim.calibration.arithmetic_rollouts` on a machine that others used, so its times are slow.
"""

from pathlib import Path

from rollsim.traces.errors import BadInput, Fault, closest

EXAMPLES = {"grpo": "grpo.parquet", "online": "online.csv", "arithmetic": "arithmetic.parquet"}


def example_path(name: str) -> Path:
    """Return the file of a shipped example.

    Raises
    ------
    BadInput
        If there is no example of that name.
    """
    if name not in EXAMPLES:
        fault = Fault("example", given=name, allowed=", ".join(EXAMPLES), closest=closest(name, EXAMPLES))
        raise BadInput(fault)
    return Path(__file__).parent / EXAMPLES[name]
