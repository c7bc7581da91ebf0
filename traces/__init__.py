"""Tables on disk and in memory. Imports nothing else of rollsim.

errors           What a user gets for bad input: every fault at once, with place, allowed values and closest match.
schema           The Arrow schemas of a run's tables; the unit of each column stands in its field metadata.
run              A run folder: open it, read its tables.
writer           Writes a run folder whole or not at all.
exchange         Two folders change places in one step.
kpis             Headline numbers of a run, from its tables alone.
step_kpis        Train steps: their time and its parts, tokens per GPU-second, the time of more steps.
staleness        How old the weights behind what was trained were.
slowest          The slowest hundredth of the trajectories, and what they cost.
bubble           The ledger as bubble by cause and as fate of generation.
interval         A mean with its confidence interval.
replications     One run folder, or a folder of several.
measured         What a comparison needs of one run.
comparison       Runs paired: differences with intervals, and what explains them.
labels           Label columns without a string per row.
tail             The tail of a run: its last tenth of trajectories.
held             Gauges as functions of time.
timeline         Gauges cut into a few slices of time.
requests         Reads a request trace (arrival, prompt and output tokens, group) from Parquet, CSV or JSON lines.
request_columns  Which columns of a request trace mean what: the alias table, and their values as numbers and dates.
request_files    The file of a request trace as Arrow columns.
metric_names     What the step metrics of each framework are called.
exporters        Tables of a run as other programs read them.
importers        Logs of frameworks as the tables of a run.
examples         Request traces that ship with the package, and the generator that made them.
"""
