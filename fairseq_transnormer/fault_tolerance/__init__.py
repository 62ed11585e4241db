"""What training survives, and how it tells of what it does not.

fairseq's own mechanisms do the work; what they lack is wrapped around them here.
docs/fault_tolerance.md has the table of faults.

stopping.py          SIGTERM: a checkpoint, then exit code 75
resuming.py          which checkpoint a run starts from; finished runs
run_lock.py          one run a folder
checkpoint_files.py  written whole or not at all; whole or not; which is the newest
training_state.py    what fairseq leaves out of its checkpoints
saving.py            a full disk; weights and losses that are not numbers
mixed_precision.py   weights in float32, so that fp16 and bf16 resume exactly
workers.py           workers that die or hang
binary_data.py       damaged files of data, ids beyond the dictionary
setting_limits.py    settings of fairseq that have no sense
setting_changes.py   checkpoints of other models, other settings than before
training.py          where these enter fairseq-train
"""
