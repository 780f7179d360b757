"""Greedy decoding with a cache of keys and values, which ends at a token or at a length."""

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocabulary: int = 128, width: int = 64) -> None:
        super().__init__()
        self.embed, self.qkv = nn.Embedding(vocabulary, width), nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids, cache=None):
        q, k, v = self.qkv(self.embed(ids)).unsqueeze(1).chunk(3, dim=-1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        return self.head(y.squeeze(1)), (k, v)


END = 3
model = Decoder().half().cuda().eval()
ids = torch.randint(4, 128, (1, 10), device="cuda")
with torch.no_grad():
    scores, cache = model(ids)
    for _ in range(16):
        token = scores[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
        if token.item() == END:
            break
        scores, cache = model(token, cache)
print(ids.shape)
