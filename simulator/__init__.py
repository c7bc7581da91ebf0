"""The world: profiles and costs, the compiled replica kernel, the replay of request traces and engine recordings.

Imports `rollsim.policies` and `rollsim.traces`.
"""
