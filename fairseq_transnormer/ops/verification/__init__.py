"""Whether Triton's kernels give on this device what torch gives, found out by trial.

A kernel that was interpreted and compiled can still be wrong on a device: a fault of
the compiler's, of the driver's, or one of ours that only a device shows. So
``backend="auto"`` tries what it is about to launch beside torch and float64, once for
each configuration that is compiled, and the verdict is kept in a file.

``trials``: what is computed and how it is judged. ``records``: the files. ``verdicts``:
when a trial takes place, and who remembers what it found.
"""
