"""Generation by transformers: greedy, with its cache."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(
    GPT2Config(vocab_size=512, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
)
model = model.to("cuda").eval()
prompt = torch.randint(3, 512, (2, 8), device="cuda")
out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False, pad_token_id=2)
print(out.shape)
