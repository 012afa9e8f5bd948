#!/usr/bin/env bash
# What only a GPU can show, in one run of under eight minutes:
#
#     tests/gpu/run.sh [PARTS...]      equality speed memory checkpoint float8 torchtitan; all of them by default
#
# A package that is missing there comes as a wheel in .whl/ (pydantic, pydantic-core, annotated-types,
# typing-inspection and xxhash on a machine that has torch and transformers). Figures go to standard output, the last
# line is one JSON object; $OUT, if set, gets a copy.
set -euo pipefail
cd "$(dirname "$0")/../.."
if compgen -G '.whl/*.whl' >/dev/null; then
    site=$(mktemp -d)
    python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" .whl/*.whl
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
export TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
if [[ -n ${OUT:-} ]]; then
    python3 -m tests.gpu.parts "$@" | tee "$OUT/figures.txt"
else
    python3 -m tests.gpu.parts "$@"
fi
