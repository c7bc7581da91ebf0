"""Tables on disk and in memory. Imports nothing else of rollsim.

errors           What a user gets for bad input: every fault at once, with place, allowed values and closest match.
schema           The Arrow schemas of a run's tables; the unit of each column stands in its field metadata.
run              A run folder: open it, read its tables.
writer           Writes a run folder whole or not at all.
kpis             Headline numbers of a run, from its tables alone.
tail             The tail of a run: its last tenth of trajectories.
held             Gauges as functions of time.
timeline         Gauges cut into a few slices of time.
requests         Reads a request trace (arrival, prompt and output tokens, group) from Parquet, CSV or JSON lines.
request_columns  Which columns of a request trace mean what: the alias table, and their values as numbers and dates.
request_files    The file of a request trace as Arrow columns.
examples         Request traces that ship with the package, and the generator that made them.
"""
