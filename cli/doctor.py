"""`rollsim doctor`: what is installed here, and whether it works."""

import typer

from rollsim.cli.console import EXIT_DONE, EXIT_WORLD_FAILED, Json, emit, table


def doctor(as_json: Json = False) -> None:
    """Check this installation: dependencies, compiled kernel, profiles, machine.

    Exit code 0 if everything that is needed works, 1 if not.
    """
    from rollsim.cli.checkup import examine

    findings = examine()
    healthy = all(finding.ok for finding in findings)
    document = {"ok": healthy, "findings": {finding.name: finding.document() for finding in findings}}
    rows = [("ok" if finding.ok else "PROBLEM", finding.name, finding.found) for finding in findings]
    emit(document, as_json, lambda: [table(("state", "what", "found"), rows)])
    raise typer.Exit(EXIT_DONE if healthy else EXIT_WORLD_FAILED)
