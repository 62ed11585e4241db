"""Write values.json: what this commit gives. See the package's docstring."""

import json
import tempfile
from pathlib import Path

from . import data_sets, models, trainings

VALUES = Path(__file__).with_name("values.json")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "models": {name: models.values_of(name) for name in models.ARCHITECTURES},
            "counts": {name: models.count(name) for name in models.ARCHITECTURES},
            "trainings": trainings.curves(Path(folder) / "trainings"),
            "data": data_sets.digests(Path(folder) / "data"),
        }
    # a line for each value: what a commit changes is seen in its diff
    parts = [
        f'"{part}": {{\n'
        + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in values[part].items())
        + "\n}"
        for part in values
    ]
    VALUES.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
