"""Tables of a run as other programs read them; what is written so can be imported again.

export         Writes a run in a format: the list of them.
step_values    What is known of each step, by meaning.
metric_logs    Step metrics under a framework's names, in a file that it could have written.
tracks         A timeline: slices and counters on named tracks.
perfetto_trace The timeline as packets of Perfetto.
chrome_trace   The timeline as Chrome trace events, which Perfetto opens too.
trajectories   The trajectories as JSON lines.
"""
