"""Configs that ship with the package, by name: ``example:sync`` is ``sync.yaml``.

sync               Synchronous and colocated.
one-step-off       The next batch is generated while the last one trains.
async              Fully asynchronous, at most 4 versions stale.
partial            Partial rollouts: over-issued, cut, resumed.
dynamic-sampling   Groups without signal are replaced.
large              A 70B model on 256 GPUs.
"""

from pathlib import Path

from rollsim.traces.errors import BadInput, Fault, closest

EXAMPLES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.yaml")))
PREFIX = "example:"


def config_path(name_or_path: str) -> Path:
    """Return the file of a config.

    Parameters
    ----------
    name_or_path : str
        ``example:NAME`` or a path.

    Raises
    ------
    BadInput
        If there is no example of that name.
    """
    if not name_or_path.startswith(PREFIX):
        return Path(name_or_path)
    name = name_or_path.removeprefix(PREFIX)
    if name not in EXAMPLES:
        allowed = ", ".join(EXAMPLES)
        raise BadInput(Fault("CONFIG", "", name_or_path, allowed, closest(name, EXAMPLES), "no such example"))
    return Path(__file__).parent / f"{name}.yaml"
