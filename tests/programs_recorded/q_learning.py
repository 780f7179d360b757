"""Reinforcement learning: actions are read back, a replay buffer on the host, a target network that is copied now and then."""

import random
from collections import deque

import torch
from torch import nn

random.seed(0)
policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)).cuda()
target = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)).cuda()
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
memory: deque = deque(maxlen=1000)
state = torch.randn(4)
for _step in range(40):
    with torch.no_grad():
        action = policy(state.cuda()).argmax().item() if random.random() > 0.1 else random.randrange(2)
    following = torch.randn(4)
    memory.append((state, action, random.random(), following))
    state = following
    if len(memory) < 16:
        continue
    states, actions, rewards, nexts = zip(*random.sample(memory, 16), strict=True)
    chosen = torch.tensor(actions, device="cuda").long().unsqueeze(1)
    value = policy(torch.stack(states).cuda()).gather(1, chosen).squeeze(1)
    with torch.no_grad():
        best = target(torch.stack(nexts).cuda()).max(1).values
    loss = nn.functional.smooth_l1_loss(value, torch.tensor(rewards, device="cuda") + 0.99 * best)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for ours, theirs in zip(target.parameters(), policy.parameters(), strict=True):
        ours.data.lerp_(theirs.data, 0.005)
