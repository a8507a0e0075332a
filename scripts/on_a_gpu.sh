#!/usr/bin/env bash
# Test, measure or run a study on a machine with a GPU, which need have no network, within LIMIT seconds (default 300).
#
#     scripts/on_a_gpu.sh pack                           # before: puts wheels, the commit and the digest of its source into WHEELS
#     scripts/on_a_gpu.sh tests [FILE...]                # there: the tests that need a GPU; by default of engines and real workers
#     scripts/on_a_gpu.sh bench                          # there: the benchmarks of both
#     scripts/on_a_gpu.sh study NAME [SETTING=VALUE...]  # there: a study, of which the finished points are kept at the limit
#
# The tree may travel without .git and without reports/. WHEELS (default: .whl) travels with it; a tree whose source differs from
# what was packed is refused. Results are in OUT (default: on_a_gpu): test.log; benchmark.md; NAME.log and
# NAME.tar.xz, which `paceline sweep NAME --from NAME.tar.xz` takes up elsewhere. LIMIT counts from the start of the script.
# Needs torch, pytorch-lightning, torchmetrics, numpy, scipy, pandas, filelock, psutil, rich, pytest and pytest-timeout there.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
what=${1:-} out=${OUT:-on_a_gpu} limit=${LIMIT:-300} wheels=${WHEELS:-.whl} site=${TMPDIR:-/tmp}/on_a_gpu_site begun=$SECONDS
left() { local rest=$((limit - SECONDS + begun - ${1:-0})); echo $((rest > 5 ? rest : 5)); }
digest() { python3 -c 'from paceline.record.provenance import source_digest; print(source_digest())'; }
unset PYTHONDONTWRITEBYTECODE # each process would compile what has not been
export PYTHONPATH="$PWD/src:$PWD:$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

if [ "$what" = pack ]; then
    [ -z "$(git status --porcelain -- src scripts ':(glob)*.py')" ] || { echo "commit first: code was changed" >&2; exit 2; }
    for name in hydra-core omegaconf pydantic pydantic-core annotated-types typing-inspection importlib-metadata; do
        python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "${PYTHON:-3.12}" --implementation cp \
            --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
            --constraint constraints.txt --dest "$wheels" "$name" || exit 1
    done
    python3 -m pip wheel --quiet --no-deps --constraint constraints.txt --wheel-dir "$wheels" antlr4-python3-runtime || exit 1
    echo "$(git rev-parse HEAD):$(digest)" | tee "$wheels/commit"
    exit
fi
if ls "$wheels"/*.whl >/dev/null 2>&1; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$wheels"/*.whl || exit 1
fi
if ! python3 -c 'from importlib.metadata import version; version("paceline")' 2>/dev/null; then # not installed, but run from src/
    mkdir -p "$site/paceline.dist-info"
    sed -n '/^name = /p; /^version = /p' pyproject.toml | sed 's/^n/N/; s/^v/V/; s/ = "/: /; s/"$//' >"$site/paceline.dist-info/METADATA"
fi
if [ -f "$wheels/commit" ]; then
    PACELINE_COMMIT=$(cat "$wheels/commit")
    export PACELINE_COMMIT
    found=$(digest) || exit 1
    [ "${PACELINE_COMMIT#*:}" = "$found" ] || { echo "the source has the digest $found, not $PACELINE_COMMIT" >&2; exit 2; }
fi
mkdir -p "$out"
python3 -c 'import torch; print(torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")' || exit 1

shift $(($# > 0))
case $what in
tests)
    [ $# -gt 0 ] || set -- tests/clock/virtual/test_engines.py tests/clock/wall/test_gpu.py
    several=$(python3 -c 'import xdist; print("-n 8")' 2>/dev/null)
    timeout --signal INT --kill-after 5 "$(left 10)" python3 -m pytest -q -p no:cacheprovider -m gpu -W default --timeout 60 -o addopts=--import-mode=importlib \
        $several "$@" >"$out/test.log" 2>&1
    ended=$?
    tail -n 15 "$out/test.log"
    exit $ended
    ;;
bench)
    timeout "$(left 30)" python3 -u -m benchmarks virtual_engines 2>"$out/benchmark.log" | tee "$out/benchmark.md"
    ended=${PIPESTATUS[0]}
    LIMIT=$(left 50) timeout "$(left 30)" python3 -u -m benchmarks gpu_workers 2>>"$out/benchmark.log" | tee -a "$out/benchmark.md"
    exit "$ended"
    ;;
study)
    name=${1:?which study? one of experiments/} && shift
    timeout --signal INT --kill-after 10 "$(left 12)" python3 -m paceline sweep "$name" measurement.mlflow.tracking_uri=null "$@" \
        2>&1 | tee "$out/$name.log"
    ended=${PIPESTATUS[0]}
    python3 - "$name" "$out/$name.tar.xz" <<'END'
import sys
from pathlib import Path
from paceline.record.archive import write_archive
from paceline.record.reading import read_result
from paceline.record.record import records_in
folders = [record for record in records_in(Path("runs", sys.argv[1])) if read_result(record)]
write_archive(Path(sys.argv[2]), folders)
print(f"{len(folders)} records in {sys.argv[2]}")
END
    exit "$ended"
    ;;
*)
    echo "scripts/on_a_gpu.sh pack | tests | bench | study NAME [SETTING=VALUE...]" >&2
    exit 2
    ;;
esac
