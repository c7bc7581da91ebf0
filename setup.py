"""Finds the packages. All else stands in pyproject.toml, which cannot join discovery with a package-dir map."""

from setuptools import find_packages, setup

LAYERS = ("traces", "policies", "simulator", "calibration", "cli")

setup(packages=[f"rollsim.{name}" for layer in LAYERS for name in find_packages(include=[layer, f"{layer}.*"])])
