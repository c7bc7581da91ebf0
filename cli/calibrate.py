"""rollsim calibrate: measure a real engine on this machine."""

import typer

from rollsim.cli import calibrate_measure

app = typer.Typer(no_args_is_help=True, help="Measure a real engine, fit a profile to it, and say how wrong it is.")
app.command("measure")(calibrate_measure.measure)
