"""Budgets and maps that keep the code readable; ruff and pyright hold the rest."""

import ast
import importlib
import statistics
from pathlib import Path

LAYERS = ("traces", "policies", "simulator", "calibration", "cli")
CODE = (*LAYERS, "tests", "benchmarks")
LONGEST = 400
MEDIAN = 130


def lines_by_file(root: Path, folders: tuple[str, ...]) -> dict[str, int]:
    files = [file for folder in folders for file in sorted((root / folder).rglob("*.py"))]
    counts = {str(file.relative_to(root)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    return {file: count for file, count in counts.items() if count}


def test_no_file_is_over_the_line_budget(repository):
    assert {file: n for file, n in lines_by_file(repository, CODE).items() if n > LONGEST} == {}


def test_the_median_file_is_short(repository):
    assert statistics.median(lines_by_file(repository, LAYERS).values()) <= MEDIAN


def test_every_package_docstring_maps_its_modules(repository):
    unmapped = {}
    for init in (file for layer in LAYERS for file in (repository / layer).rglob("__init__.py")):
        docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        modules = {file.stem for file in init.parent.glob("*.py")} - {"__init__"}
        packages = {file.parent.name for file in init.parent.glob("*/__init__.py")}
        words = set(docstring.replace(",", " ").replace("`", " ").split())
        missing = sorted((modules | packages) - words)
        if missing:
            unmapped[str(init.relative_to(repository))] = missing
    assert unmapped == {}


def test_every_folder_with_code_is_a_layer(repository):
    assert {init.parent.name for init in repository.glob("*/__init__.py")} - {"tests"} == set(LAYERS)
    for layer in LAYERS:
        assert Path(importlib.import_module(f"rollsim.{layer}").__file__ or "").parent == repository / layer
