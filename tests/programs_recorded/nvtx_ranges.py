"""Ranges for Nsight as decorator and as context, and a profiler with a schedule."""

import torch
from torch import nn

model = nn.Linear(128, 128).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@torch.cuda.nvtx.range("training step")
def train_step(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.nvtx.range_push("forward")
    loss = model(x).square().mean()
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("backward"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
with torch.profiler.profile(activities=activities, schedule=schedule) as profiler:
    for _ in range(6):
        start.record()
        train_step(torch.randn(16, 128, device="cuda"))
        end.record()
        torch.cuda.synchronize()
        print("took", start.elapsed_time(end))
        profiler.step()
