"""A stand-in for training: a script that logs, saves and ends as it is told."""

import json
import sys
from pathlib import Path

from fairseq_transnormer.reproduce.runs.plans import Plan, Step
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder

# argument: updates, seconds each, update to fail at (0: never), update to hang at
SCRIPT = """
import json, os, sys, time
updates, seconds, fail_at, hang_at = int(sys.argv[1]), *map(float, sys.argv[2:5])
os.makedirs("checkpoints", exist_ok=True)
state = "checkpoints/update"
start = int(open(state).read()) if os.path.exists(state) else 0
print("num. shared model params: 1,500,000 (num. trained: 1)", flush=True)
for n in range(start + 1, updates + 1):
    time.sleep(seconds)
    def log(kind, **record):
        print(f"[2026][{kind}][INFO] - " + json.dumps(record), flush=True)
    log("train_inner", num_updates=str(n), wps=str(100 * n), loss="1")
    for kind in ("valid", "test"):
        ppl = (50.0 if kind == "valid" else 60.0) - n
        log(kind, **{f"{kind}_ppl": str(ppl), f"{kind}_loss": str(ppl),
                     f"{kind}_num_updates": str(n)})
    with open(state + ".part", "w") as file:
        file.write(str(n))
    os.replace(state + ".part", state)
    open("devices", "a").write(os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
    if n == fail_at:
        raise SystemExit("the disk is full")
    while n == hang_at:
        time.sleep(1)
"""


def command(updates=3, seconds=0.0, fail_at=0, hang_at=0) -> list[str]:
    arguments = map(str, (updates, seconds, fail_at, hang_at))
    return [sys.executable, "-c", SCRIPT, *arguments]


def plan(name: str, steps: list[Step] | None = None, **options) -> Plan:
    return Plan(
        name=name,
        configuration={"model": {"width": 8}, "optimization": {"max_update": 3}},
        data="data",
        data_fingerprint="abc",
        seed=1,
        updates=options.get("updates", 3),
        steps=steps or [Step("train", command(**options))],
    )


def prepared(folder: Path, name: str, **options) -> RunFolder:
    run = RunFolder(folder / name)
    run.prepare(plan(name, **options))
    return run


def finished_run(folder: Path, configuration: dict, ppl: float, seed: int = 1) -> None:
    """Write what a finished run of this perplexity leaves."""
    run = RunFolder(folder)
    made = plan("/".join(folder.parts[-3:]))
    made.configuration, made.seed = configuration, seed
    run.prepare(made)
    records = [
        ("train_inner", {"num_updates": "1", "wps": "0"}),
        ("train_inner", {"num_updates": "2", "wps": "1000"}),
    ]
    for update, value in ((1, ppl + 5), (2, ppl), (3, ppl + 1)):
        for kind, extra in (("valid", 0.0), ("test", 1.0)):
            record = {"loss": value, "ppl": value + extra, "num_updates": update}
            records.append((kind, {f"{kind}_{k}": str(v) for k, v in record.items()}))
    lines = [f"[2026][{kind}][INFO] - {json.dumps(record)}" for kind, record in records]
    lines.insert(0, "num. shared model params: 155,988,540 (num. trained: 1)")
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    attempt = {
        "step": "train", "started": 0, "ended": 90, "exit_code": 0,
        "peak_rss_bytes": 2**30, "device": "CPU", "machine": "here", "commit": "abc",
        "versions": {"torch": "2"},
    }  # fmt: skip
    status = {"state": "finished", "steps_done": ["train"], "attempts": [attempt]}
    run.write_status(status)
