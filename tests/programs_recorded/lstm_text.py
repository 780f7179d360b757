"""A recurrent model of packed sequences, truncated backpropagation and clipping."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = (
            nn.Embedding(100, 32, padding_idx=0),
            nn.LSTM(32, 64, num_layers=2, batch_first=True, dropout=0.1),
        )
        self.out = nn.Linear(64, 5)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(hidden)


model = Tagger().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    lengths = torch.tensor([9, 5, 3, 9])
    ids, tags = torch.randint(1, 100, (4, 9)).cuda(), torch.randint(0, 5, (4, 9)).cuda()
    loss = nn.functional.cross_entropy(model(ids, lengths).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
