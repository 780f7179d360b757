"""A step captured as a CUDA graph and replayed."""

import torch
from torch import nn

model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
static = torch.randn(16, 64, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(static).sum().backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    model(static).sum().backward()
    optimizer.step()
graph.replay()
