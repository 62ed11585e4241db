import sys, time, shutil, signal
from pathlib import Path
from tests.tiny_data import write_tiny_data
from tests.fault_tolerance.trainings import Training
if __name__ == "__main__":
    base=Path("/tmp/ft"); shutil.rmtree(base, ignore_errors=True); base.mkdir()
    t=time.time()
    data=write_tiny_data(base/"data", lines=300); print("data", time.time()-t)
    t=time.time(); a=Training(data, base/"a"/"ck"); print(a.run(), time.time()-t); print(a.losses(), a.validations())
    t=time.time(); b=Training(data, base/"b"/"ck"); print(b.run(), time.time()-t); print(b.losses()==a.losses())
    import os; os.system("ls -la /tmp/ft/a/ck; grep -n 'ms\\|rror' /tmp/ft/a/*.log | head; tail -5 /tmp/ft/a/*.log")
    t=time.time(); c=Training(data, base/"c"/"ck", workers=2); print(c.run(), time.time()-t); print(c.losses())
