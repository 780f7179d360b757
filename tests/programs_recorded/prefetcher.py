"""Batches are copied on a stream of their own while the step before computes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int):
        return torch.randn(3, 16, 16), index % 10


class Prefetcher:
    def __init__(self, loader) -> None:
        self.batches, self.stream = iter(loader), torch.cuda.Stream()
        self.load()

    def load(self) -> None:
        try:
            x, y = next(self.batches)
        except StopIteration:
            self.following = None
            return
        with torch.cuda.stream(self.stream):
            self.following = x.cuda(non_blocking=True).sub_(0.5).div_(0.25), y.cuda(non_blocking=True)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.following
        if batch is not None:
            for tensor in batch:
                tensor.record_stream(torch.cuda.current_stream())
            self.load()
        return batch


model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
prefetcher = Prefetcher(
    DataLoader(Noise(), batch_size=16, shuffle=True, num_workers=2, pin_memory=True, persistent_workers=True)
)
while (batch := prefetcher.next()) is not None:
    x, y = batch
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
