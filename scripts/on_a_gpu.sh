#!/usr/bin/env bash
# Test and measure the engines of the virtual clock on a GPU, within LIMIT seconds (default 300).
#
#     OUT=folder WHEELS=folder scripts/on_a_gpu.sh
#
# WHEELS: wheels of packages that are missing there; without it nothing is installed.
# Needs torch, pytorch-lightning, torchmetrics, numpy, pydantic, hydra-core, omegaconf, pytest, pytest-timeout, pandas,
# filelock and psutil. Writes test.log, benchmark.md and profile.log to OUT (default: on_a_gpu).
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-on_a_gpu} limit=${LIMIT:-300} begun=$SECONDS
mkdir -p "$out"
left() { local rest=$((limit - SECONDS + begun)); echo $((rest > 5 ? rest : 5)); }
if [ -n "${WHEELS:-}" ]; then
    python3 -m pip install --quiet --no-index --no-deps "$WHEELS"/*.whl || python3 -m pip install --quiet --no-index --no-deps \
        --break-system-packages "$WHEELS"/*.whl
fi
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}"
python3 -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())' | tee "$out/device.txt" || exit 1
failed=0
several=$(python3 -c 'import xdist; print("-n 8")' 2>/dev/null)
timeout $(($(left) / 3)) python3 -m pytest -q -p no:cacheprovider -m gpu -W default --timeout 60 -o addopts=--import-mode=importlib $several \
    tests/clock/virtual/test_engines.py >"$out/test.log" 2>&1 || failed=1
tail -n 15 "$out/test.log"
timeout "$(left)" python3 -m benchmarks virtual_engines 2>"$out/benchmark.log" | tee "$out/benchmark.md"
[ "${PIPESTATUS[0]}" = 0 ] || failed=1
timeout "$(left)" python3 -m benchmarks.virtual_engines >"$out/profile.log" 2>&1
exit $failed
