"""Train steps and transfers of a device as text, 80 columns wide."""

import statistics
from collections.abc import Iterator
from typing import Any

from rollsim.simulator.wording import percent, si, wrap


def training_text(document: dict[str, Any]) -> str:
    """Lay out the document of `rollsim.calibration.train_fit.fit_training`."""
    return "\n".join(_training(document))


def _training(said: dict[str, Any]) -> Iterator[str]:
    model, peak = said["model"], said["peak"]
    yield from wrap(
        f"{model['name']}, {si(model['parameters'])} parameters, on {said['device']['name']}, {said['clock']} time"
    )
    yield from wrap(
        f"peak {peak['flops'] / 1e12:,.4g} TFLOP/s: {peak['whose']}; the fastest product seen here "
        f"{said['peak_flops'] / 1e12:,.4g}"
    )
    yield ""
    yield f"{'tokens':>8}{'sequence':>10}{'recompute':>11}{'with gradients':>20}{'without':>18}"
    for point in said["points"]:
        both = [statistics.median(point[name]) for name in ("gradients_s", "forward_s")]
        cells = "".join(
            f"{1e3 * seconds:>9,.4g} ms{point['tokens'] / seconds:>{width},.0f}/s"
            for seconds, width in zip(both, (6, 6), strict=True)
        )
        yield f"{point['tokens']:>8,}{point['length']:>10,}{'yes' if point['recompute'] else 'no':>11}{cells}"
    yield ""
    for name, value in said["train"].items():
        yield f"{name:<15}{value['value']:.4f}  fitted"
    for name, found in said["errors"].items():
        yield f"{name}: median error {percent(found['median'])}, worst {percent(found['worst'])}, n = {found['n']}"
    yield f"optimizer: {said['optimizer_bytes_per_s'] / 1e9:,.4g} GB/s at 30 bytes a parameter"
    yield f"noise: ± {percent(said['noise'])}, half of the range of {len(said['reference_s'])} runs of one micro-batch"
    if said["stopped"]:
        yield from wrap(f"not timed: {said['stopped']}")


def transfers_text(document: dict[str, Any]) -> str:
    """Lay out the document of `rollsim.calibration.transfer_fit.fit_transfers`."""
    return "\n".join(_transfers(document))


def _transfers(said: dict[str, Any]) -> Iterator[str]:
    yield from wrap(f"on {said['device']['name']}, {said['devices']} GPUs")
    yield ""
    yield f"{'transfer':<20}{'fixed, us':>11}{'GB/s':>9}{'error: fitted':>15}{'held out':>10}"
    for name, line in said["timings"].items():
        label = f"{name} ({line['backend']})" if "backend" in line else name
        if "not_timed" in line:
            yield from wrap(f"{label}: not timed: {line['not_timed']}")
            continue
        rate = "-" if line["bytes_per_s"] is None else f"{line['bytes_per_s'] / 1e9:,.4g}"
        found = [percent(line["errors"][which]["median"]) for which in ("fitted", "held out")]
        yield f"{label:<20}{1e6 * line['fixed_s']:>11,.4g}{rate:>9}{found[0]:>15}{found[1]:>10}"
    yield ""
    if said["sync"]:
        yield "for a profile: " + ", ".join(said["sync"])
    else:
        yield "nothing of it is for a profile: copies and collectives of a CPU are no cluster's"
