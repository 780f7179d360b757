# train.py FOLDER NAME SPEC SECONDS N: steps of a program until time is up, beside N-1 others that wait for each other
import sys, time, pathlib, os
folder, name, spec, sec, n = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
import torch
from gpusim.programs import zoo
program = zoo.build(spec)
for _ in range(5): program.step()
torch.cuda.synchronize()
(folder / f"{name}.ready").touch()
while len(list(folder.glob("*.ready"))) < n: time.sleep(0.001)
t0 = time.perf_counter(); times = []
while time.perf_counter() - t0 < sec:
    b = time.perf_counter(); program.step(); torch.cuda.synchronize(); times.append(time.perf_counter() - b)
times.sort(); k = len(times)
print(f"{folder.name},{name},{spec!r},{n},{os.environ.get('CUDA_MPS_ACTIVE_THREAD_PERCENTAGE','')},{k},mean={sum(times)/k*1e3:.3f},p10={times[k//10]*1e3:.3f},median={times[k//2]*1e3:.3f},p90={times[-1-k//10]*1e3:.3f}", flush=True)
(folder / f"{name}.done").touch()
while len(list(folder.glob("*.done"))) < n:  # keep the load on until all are done
    program.step(); torch.cuda.synchronize()
