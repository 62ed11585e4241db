"""What this package changes in fairseq; apply.py has the table of it.

compatibility.py     today's torch, numpy and Hydra
literal_values.py    what fairseq evaluates is no code
loading.py           checkpoints are looked at before fairseq has them
model_archives.py    archives of models are unpacked with a filter
setting_limits.py    invalid settings of fairseq
setting_changes.py   checkpoints of other models, other settings than before
training_start.py    where training begins
resuming.py          which checkpoint a run starts from; finished runs
run_lock.py          one run a folder
training_state.py    what fairseq leaves out of its checkpoints
saving.py            a full disk; weights and losses that are not numbers
stopping.py          SIGTERM: a checkpoint, then exit code 75
training_log.py      train.log of each run; a bar of all of it on a terminal
workers.py           workers that die or hang
binary_data.py       damaged files of data, ids beyond the dictionary
mixed_precision.py   weights in float32, so that fp16 and bf16 resume exactly
data_parallel.py     any number of workers trains alike

docs/fault_tolerance.md has the table of faults.
"""

from .compatibility import import_fairseq

# first, and with it the plugin: whichever of these files is asked for, all are complete
import_fairseq()
