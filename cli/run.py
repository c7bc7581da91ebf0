"""`rollsim run`: a config through the whole loop."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rollsim.cli.console import EXIT_DONE, EXIT_WORLD_FAILED, Json, Quiet, emit, note, progress, ready_kernel

if TYPE_CHECKING:
    from rollsim.simulator.invariants import Finding


def run(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file, or example:NAME (sync, async, ...).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[A.B=VALUE]...", help="Settings over the config's, as train.steps=4.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="All that is random comes from it.")] = 0,
    replications: Annotated[int, typer.Option(min=1, metavar="N", help="Runs with seeds from --seed on.")] = 1,
    out: Annotated[str | None, typer.Option(metavar="RUN", help="Folder to write the run's tables into.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the invariants, with a second run; exit 1 if one is broken.")
    ] = False,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the resolved config and stop.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a config: prompts, rollouts, rewards, train steps, new weights.

    Prints step time with its parts, tokens per GPU, wall-clock and cost, bubble by cause, staleness, the slowest 1 %
    and what is fitted, assumed and extrapolated.

    \b
    rollsim run example:sync
    rollsim run example:async train.steps=4 policies.selection.eta=2 --out runs/a
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.simulator import simulate
    from rollsim.simulator.replications_report import summary, text
    from rollsim.simulator.run_report import text as run_text
    from rollsim.simulator.world_failed import WorldFailed

    loaded = simulate.load(config, overrides or ())
    if print_config:
        _print_config(simulate.resolved(loaded), as_json=as_json)
        return
    setups = simulate.replications(loaded, config, seed, replications)
    folders = simulate.run_folders(out, replications)
    ready_kernel("run", quiet)
    documents, findings = [], []
    wall_s = 0.0
    steps = loaded.train.steps
    rounds = 2 if check else 1
    with progress("simulating", rounds * steps * replications, quiet) as shown:
        for i, (setup, folder) in enumerate(zip(setups, folders, strict=True)):
            before = rounds * i * steps
            try:
                done = simulate.simulate(setup, lambda n, before=before: shown(before + n))
                found = done.findings
                if check:
                    found = found + simulate.check_twice(done, lambda n, before=before + steps: shown(before + n))
            except WorldFailed as error:
                note(f"the world failed: {error}; seed {setup.seed}")
                raise typer.Exit(EXIT_WORLD_FAILED) from None
            if folder is not None:
                simulate.write(done, folder)
                note(f"wrote {folder}", quiet)
            documents.append(done.document)
            findings.append(found)
            wall_s += done.wall_s
            # Its tables may be large.
            del done
    broken = [finding for each in findings for finding in each if not finding.ok]
    document = documents[0] if replications == 1 else summary(documents, [setup.seed for setup in setups])
    if check:
        document = document | {"findings": [finding.document() for each in findings for finding in each]}
    emit(document, as_json, lambda: [run_text(document, wall_s) if replications == 1 else text(document, wall_s)])
    if check and not as_json:
        emit(None, as_json, lambda: _checked(broken, findings))
    for finding in [] if check else broken:
        note(str(finding))
    raise typer.Exit(EXIT_WORLD_FAILED if broken else EXIT_DONE)


def _checked(broken: "list[Finding]", findings: "list[list[Finding]]") -> Iterator[str]:
    """What the invariants found, of all replications if one is broken."""
    from rollsim.simulator.wording import wrap

    yield ""
    for finding in broken or findings[0]:
        yield "\n".join(wrap(str(finding), indent=7))
    others = f", in all {len(findings)} replications" if len(findings) > 1 else ""
    yield f"{len(broken)} broken." if broken else f"All hold{others}. The tests hold INV-8, 9 and 11."


def _print_config(document: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        emit(document, as_json, list)
        return
    import yaml

    typer.echo(yaml.safe_dump(document, sort_keys=False).rstrip())
