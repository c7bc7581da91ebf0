"""The command line: one file per command, no logic. Results on stdout, everything else on stderr.

start       What the program calls.
app         Assembles the commands; imports nothing heavy.
console     Output (tables, JSON, progress) and the exit codes.
doctor      `rollsim doctor`: what is installed, and whether it works.
checkup     What `rollsim doctor` looks at.
run         `rollsim run`: a config through the whole loop.
split       `rollsim split`: how to share the GPUs between rollout and training.
fit         `rollsim fit`: a workload from what was measured.
laws        `rollsim laws`: length laws that ship with the package.
profiles    `rollsim profiles`: the cost models that ship with the package.
calibrate   `rollsim calibrate`: a real engine on this machine, or the log of a training run: `calibrate_measure` runs
            and times one, `calibrate_fit` makes a profile of either, `calibrate_watch` looks whether it still holds,
            `calibrate_device` times train steps and transfers.
import_log  `rollsim import`: the log of a framework as the tables of a run.
export_run  `rollsim export`: a run in a format of somebody else.
show        `rollsim show`: a run folder as text.
compare     `rollsim compare`: two runs, paired.
replay      `rollsim replay`: a trace of requests, or engine recordings, through a calibrated engine.

Exit codes: 0 done, 1 the world failed or the machine did, 2 bad input, 3 validation outside tolerance, 130 interrupted.
"""
