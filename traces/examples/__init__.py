"""Request traces that ship with the package.

grpo.parquet    One GRPO-like rollout step: 256 groups of 8, all at t = 0, long-tailed outputs with a cap.
online.csv      Requests that arrive one after the other, as a serving engine sees them.
generate        Makes both.
"""

from pathlib import Path

from rollsim.traces.errors import BadInput, Fault, closest

EXAMPLES = {"grpo": "grpo.parquet", "online": "online.csv"}


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
