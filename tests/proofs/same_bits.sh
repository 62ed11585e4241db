#!/usr/bin/env bash
# Trains the models of tests/proofs at an earlier commit and at this one, on this machine,
# and compares their weights bit for bit.
#
# usage: tests/proofs/same_bits.sh COMMIT
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: tests/proofs/same_bits.sh COMMIT" >&2 && exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
commit=$(git rev-parse --verify --quiet "$1^{commit}") || {
    echo "same_bits.sh: $1 is no commit of this repository" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/code"
git archive "$commit" | tar x -C "$work/code"
# the proofs of this commit, on the code of both
rm -rf "$work/code/tests/proofs" && cp -r tests/proofs "$work/code/tests/proofs"
export OMP_NUM_THREADS=1
train='import sys
from pathlib import Path
from tests.proofs import trainings
if __name__ == "__main__":
    trainings.curves(Path(sys.argv[1]))'
for where in "$work/code" "$root"; do
    name=$([ "$where" = "$root" ] && echo now || echo before)
    echo "$train" >"$work/train.py"
    (cd "$where" && PYTHONPATH=$where "$root/.venv/bin/python" "$work/train.py" \
        "$work/$name" >"$work/$name.log" 2>&1) || { cat "$work/$name.log" && exit 1; }
done
PYTHONPATH=$root .venv/bin/python - "$work" <<'PYTHON'
import sys
from pathlib import Path

import torch

from tests.proofs import trainings

work, different = Path(sys.argv[1]), 0
for path in sorted((work / "now").rglob("checkpoint_last.pt")):
    folder = path.parent.relative_to(work / "now")
    now, before = (trainings.weights(work / x / folder) for x in ("now", "before"))
    same = now.keys() == before.keys() and all(
        torch.equal(x, before[name]) for name, x in now.items()
    )
    print(f"{folder}: {'the same bits' if same else 'DIFFERENT'}")
    different += not same
sys.exit(1 if different else 0)
PYTHON
