"""Logs of frameworks as the tables of a run.

log            Reads the log of any framework: finds its files, says whose they are, imports them.
imported       What an import gives: tables, found, derived, missing, faults.
importer       What an importer is.
draft          An import under way.
files          The files of a log folder, and what each looks like.
lines          Log files line by line.
fields         Single values of a log as numbers.
damage         What was wrong, counted by kind.
rows           Rows of a table as they are read.
step_log       Step metrics, and the tables made of them.
step_meanings  Step metrics as columns of `steps`: definitions that differ are converted.
console        Step metrics that frameworks print.
trackers       Step metrics as trackers keep them.
verl, areal, slime, openrlhf, nemo_rl, prime_rl, skyrl, trl
               One importer each.
"""
