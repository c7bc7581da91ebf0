"""A validation as text, 80 columns wide."""

from typing import Any

from rollsim.simulator.wording import number, pair, percent, plural, wrap


def text(document: dict[str, Any]) -> str:
    """Lay out the document of `rollsim.calibration.validation.validate`."""
    clock = {"cpu": "CPU time", "wall": "wall time"}[document["clock"]]
    lines = wrap(f"{document['profile']} against {document['measurement']}, by {clock}")
    batches = plural(len(document["batches"]), "held-out batch", "held-out batches")
    said = f"not compared: a client does not see the steps of a server; {batches}"
    if document["steps"] is not None:
        said = f"equal in all {plural(document['steps'], 'step')} of {batches}"
    lines += ["", *wrap(f"scheduling   {said}", indent=13)]
    for row in document["batches"]:
        counts = [plural(row[f"{name}s"], name) for name in ("step", "preemption", "request") if f"{name}s" in row]
        lines += ["", f"{row['name']}: {', '.join([*counts, plural(row['repeats'], 'run')])}"]
        lines.append(f"  {'':<22}{'predicted':>10}{'measured':>10}{'error':>9}{'runs':>10}")
        for metric in row["metrics"]:
            mean = sum(metric["measured"]) / len(metric["measured"])
            name = f"{metric['name']}, {metric['unit']}"
            spread = "" if row["repeats"] < 2 else f"± {percent(metric['spread'])}"
            lines.append(
                f"  {name:<22}{number(metric['predicted']):>10}{number(mean):>10}{metric['error']:>+9.1%}{spread:>10}"
            )
    notes = [line for note in document["notes"] for line in pair("note", note)]
    return "\n".join([*lines, "", *_verdict(document), *notes])


def _verdict(document: dict[str, Any]) -> list[str]:
    noise = document["noise"]
    said = "not known, fewer than five runs of the reference batch"
    if noise is not None:
        said = f"± {percent(noise)}, half of the range of {document['noise_repeats']} interleaved runs"
    verdict = {True: "passed", False: "OUTSIDE TOLERANCE", None: "VOID: the machine is noisier than the tolerance"}
    return [
        *wrap(f"noise        {said}", indent=13),
        f"{document['r2_of']:<12} R2 {document['r2']:.3f}",
        *wrap(
            f"makespan     worst error {percent(document['worst_makespan_error'])}, tolerance "
            f"{percent(document['tolerance'])}: {verdict[document['passed']]}",
            indent=13,
        ),
    ]
