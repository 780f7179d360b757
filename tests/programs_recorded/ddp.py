"""Data-parallel training as it is started by `torchrun --nproc-per-node 1`."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
data = TensorDataset(torch.randn(256, 32), torch.randint(0, 4, (256,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler, pin_memory=True)
model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)).to(device)
model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        if dist.get_rank() == 0:
            print("loss", total.item() / dist.get_world_size())
    dist.barrier()
dist.destroy_process_group()
