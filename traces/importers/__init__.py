"""Logs of frameworks as the tables of a run.

log            Reads the log of any framework: finds its files, says whose they are, imports them.
imported       What an import gives: tables, found, derived, missing, faults.
importer       What an importer is.
draft          An import under way.
files          The files of a log folder, and what each looks like.
lines          Log files line by line.
fields         Single values of a log as numbers.
forms          Rows of several versions of a format in one log.
damage         What was wrong, counted by kind.
rows           Rows of a table as they are read.
step_log       Step metrics, and the tables made of them.
step_meanings  Step metrics as columns of `steps`.
step_definitions
               Where frameworks define a step metric differently: it is converted, and said.
console        Step metrics that frameworks print.
run_folder     Writes an imported log as a run folder.
settle         What is true of all rows only when all are read: repeated names, contradictory times, time 0.
text           Counts tokens of text with the user's tokenizer.
pieces         A table file in pieces of bounded size.
restricted_pickle
               Opens a pickle without running what is in it.
trackers       Step metrics as trackers keep them.
tensorboard    Scalars of TensorBoard's event files.
verl, areal, slime, openrlhf, nemo_rl, prime_rl, skyrl, trl
               One importer each; vllm_bench, guidellm and plain (any table) for benchmarks and traces.
verl_dump, areal_rollouts, slime_dump, nemo_rl_samples, prime_rl_episodes, trl_completions
               Trajectories of each; chrome_spans reads AReaL's performance trace.
"""
