#!/usr/bin/env bash
# From a folder of your texts to a language model: installs the package, divides the text
# into train, valid and test, cuts it into subwords, trains a T2 whose size follows from
# the text, scores it beside trivial rules, lets it write and draws its curves.
#   scripts/own_text.sh my-texts --dest runs/mine
# The same command again resumes; --dry-run prints the plan and the commands. All
# options: scripts/own_text.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
case " $* " in
    *" --help "* | *" -h "*) [ -x "$python" ] || python=$(command -v python3) ;;
    *) bash "$root/scripts/install.sh" ;;
esac
# appended, not put first: with the repository installed this changes nothing
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
exec "$python" -m fairseq_transnormer own_text "$@"
