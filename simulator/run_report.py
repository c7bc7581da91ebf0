"""The document of a run as text of at most 80 columns. Every section says what its numbers are."""

from typing import Any

from rollsim.simulator.bubble_report import bubble_lines, fate_lines
from rollsim.simulator.trust_report import trust_lines
from rollsim.simulator.wording import bar, number, pair, percent, plural, si, wrap
from rollsim.traces.step_kpis import PARTS

_BINS = 12
_OTHER = {"predicted": "warm-up, other", "logged": "other"}


def text(document: dict[str, Any], wall_s: float | None = None) -> str:
    """Lay out a document of `rollsim.simulator.run_document`; `wall_s` is how long the simulation took."""
    sections = (input_lines, *MEASURES, trust_lines)
    lines = [line for section in sections for line in section(document)]
    if wall_s is not None:
        lines += ["", f"Simulated {document['kpis']['trajectories']:,} trajectories in {wall_s:.2f} s."]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def input_lines(document: dict[str, Any]) -> list[str]:
    """Say what was run: cluster, engine, batch, workload, policies, and what a user should know of them."""
    basis, kpis = document["basis"], document["kpis"]
    if basis is None:
        return pair("run", f"{kpis['trajectories']:,} trajectories; what it rests on is not recorded")
    cluster, profile, train = basis["cluster"], basis["profile"], basis["train"]
    split = "shared by rollout and training"
    if not cluster["shared"]:
        split = f"{cluster['rollout_gpus']} for rollout, {cluster['train_gpus']} for training"
    batch = train["prompts_per_step"] * train["samples_per_prompt"]
    workload = ", ".join(f"{name} {_given(value)}" for name, value in basis["workload"].items() if value is not None)
    policies = "; ".join(f"{point} {policy_words(given)}" for point, given in basis["policies"].items())
    extra = document["extra_share"]
    rows = {
        "cluster": f"{cluster['gpus']} x {profile['gpu']}: {split}",
        "engine": f"{cluster['replicas']} x {profile['model']} {profile['dtype']}, tp {profile['tp']}; rules of "
        f"{profile['engine']}",
        "batch": f"{plural(train['prompts_per_step'], 'prompt')} x {train['samples_per_prompt']} = "
        f"{plural(batch, 'trajectory', 'trajectories')} a step, "
        f"{plural(train['mini_batches'], 'mini-batch', 'mini-batches')}, {plural(train['epochs'], 'epoch')}",
        "workload": workload + (f"; {percent(extra)} of the responses drawn beyond the recorded" if extra else ""),
        "policies": policies or "the defaults",
    }
    notes = [line for note in basis["notes"] for line in pair("note", note)]
    return [line for name, value in rows.items() for line in pair(name, value)] + notes


def grade(document: dict[str, Any]) -> str:
    """What the numbers are: those of a log were measured."""
    return "logged" if "log" in document else "predicted"


def _given(value: Any) -> str:
    """A setting in one line, sections in brackets."""
    if isinstance(value, list):
        return " ".join(map(_given, value))
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {inner}" for name, inner in value.items() if inner is not None) + ")"
    return str(value)


def policy_words(given: Any) -> str:
    """What stands at a decision point, as the config has it, in one line."""
    if isinstance(given, list):
        return " + ".join(policy_words(entry) for entry in given) or "none"
    if not isinstance(given, dict):
        return str(given)
    settings = ", ".join(f"{name}={value}" for name, value in given.items() if name != "use")
    return f"{given.get('use')}({settings})" if settings else str(given.get("use"))


def _step(document: dict[str, Any]) -> list[str]:
    steps = document["steps"]
    if steps is None:
        return ["", *wrap("There are no train steps in this run.")]
    step, later = steps["step_s"], steps["later_s"]
    lines = ["", f"{f'STEP TIME, {grade(document)}':<28}{'mean, s':>10}{'share':>8}"]
    for name, seconds in steps["parts_s"].items():
        share = seconds / step["mean"] if step["mean"] else 0.0
        if seconds > 0:
            what = PARTS.get(name, _OTHER[grade(document)])
            lines.append(f"{what:<28}{number(seconds):>10}{percent(share):>8} {bar(share, 1.0, 24)}")
    lines.append(f"{'a step':<28}{number(step['mean']):>10}{percent(1.0):>8} {_within(step)}")
    if later["mean"] is not None:
        lines.append(f"{'  without the first':<28}{number(later['mean']):>10}{'':>8} {_within(later)}")
    spread = steps["spread_s"]
    known = [f"{name.upper()} {number(value)} s" for name, value in spread["percentiles"].items() if value is not None]
    refused = [name.upper() for name, value in spread["percentiles"].items() if value is None]
    line = ", ".join([*known, f"longest {number(spread['max'])} s"])
    return lines + wrap(line + (f"; {', '.join(refused)} need more steps than {spread['n']}" if refused else ""))


def _within(interval: dict[str, Any]) -> str:
    if interval["low"] is None:
        return f"n = {interval['n']}: no interval"
    return f"{number(interval['low'])} to {number(interval['high'])} (95 %, n = {interval['n']})"


def _answer(document: dict[str, Any]) -> list[str]:
    kpis, steps = document["kpis"], document["steps"]
    rows = [("generated, per GPU of the rollout pool", kpis["output_tokens_per_gpu_s"])]
    if steps is not None:
        rows = [
            ("trained (prompt and response), per GPU", steps["trained_tokens_per_gpu_s"]),
            ("generated, per GPU", steps["generated_tokens_per_gpu_s"]),
            *rows,
        ]
    lines = ["", f"{f'TOKENS PER SECOND, {grade(document)}':<44}{'tokens/s':>10}"]
    lines += [f"{name:<44}{number(value):>10}" for name, value in rows]
    clocks = document["wall_clock"]
    if clocks:
        lines += ["", f"{'WALL-CLOCK':<16}{'hours':>10}{'USD':>14}"]
    for clock in clocks:
        usd = "-" if clock["usd"] is None else number(clock["usd"])
        how = grade(document)
        if clock["extrapolated"]:
            how = "EXTRAPOLATED from the later steps"
        lines.append(f"{clock['steps']:>8,} steps  {number(clock['seconds'] / 3600):>10}{usd:>14}  {how}")
        if clock["low_s"] is not None:
            ends = f"{number(clock['low_s'] / 3600)} to {number(clock['high_s'] / 3600)} h"
            lines.append(f"{'':>42}{ends} (95 %)")
    return lines


def _staleness(document: dict[str, Any]) -> list[str]:
    age = document["staleness"]
    if age is None:
        return []
    lines = ["", f"{f'STALENESS, {grade(document)}':<22}{'trajectories':>14}{'share':>8}"]
    top = max(entry["share"] for entry in age["bins"])
    shown = age["bins"] if len(age["bins"]) <= _BINS else age["bins"][: _BINS - 1]
    rows = [(f"{entry['versions']:,}", entry["trajectories"], entry["share"]) for entry in shown]
    if len(shown) < len(age["bins"]):
        rest = age["bins"][len(shown) :]
        trajectories, share = (sum(entry[name] for entry in rest) for name in ("trajectories", "share"))
        rows.append((f"{rest[0]['versions']:,} or more", trajectories, share))
        top = max(top, share)
    lines += [
        f"{name + ' versions':<22}{count:>14,}{percent(share):>8} {bar(share, top, 32)}" for name, count, share in rows
    ]
    body = f"Mean {number(age['mean'])}, most {age['max']}"
    if age["group_mean"] is not None:
        body += f"; by the stalest member of each group, mean {number(age['group_mean'])}"
    if age["mixed_share"] is not None:
        body += f". Tokens of more than one version: {percent(age['mixed_share'])} of the trajectories"
    return lines + wrap(body + ".")


def _slowest(document: dict[str, Any]) -> list[str]:
    slow = document["slowest"]
    head = ["", f"SLOWEST 1 %, {grade(document)}"]
    if slow is None:
        return [*head, "Fewer than 100 trajectories ended: refused."]
    body = (
        f"{slow['trajectories']:,} of {slow['of']:,} trajectories took {number(slow['from_s'])} s or more, "
        f"{number(slow['mean_s'])} s in the mean against {number(slow['others_mean_s'])} s. They hold "
        f"{percent(slow['token_share'])} of the tokens"
    )
    body += f"; {slow['discarded']:,} of them were discarded." if slow["discarded"] else "."
    if slow["steps"] and slow["waited_s"] is not None:
        body += (
            f" They were in {slow['steps']:,} train steps, which waited {number(slow['waited_s'])} s for them after "
            f"all others had ended: {percent(slow['waited_share'])} of the time of all steps."
        )
    return head + wrap(body + f" Generated in all: {si(document['kpis']['output_tokens'])} tokens.")


# What is said of the numbers themselves, whoever they are of.
MEASURES = (_step, _answer, bubble_lines, fate_lines, _staleness, _slowest)
