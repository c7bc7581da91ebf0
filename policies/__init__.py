"""Pure decisions over read-only views: no SimPy, no clock but the view's, no cost. One policy, one file.

Imports only `rollsim.traces`.
"""
