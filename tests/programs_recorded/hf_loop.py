"""A Llama from its configuration in a loop of one's own, with a schedule of transformers."""

import torch
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_scheduler

config = LlamaConfig(
    vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2
)
device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
model = LlamaForCausalLM(config).to(device, dtype=torch.bfloat16)
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
loader = DataLoader([{"input_ids": torch.randint(0, 512, (64,))} for _ in range(16)], batch_size=4, shuffle=True)
schedule = get_scheduler("linear", optimizer=optimizer, num_warmup_steps=0, num_training_steps=len(loader))
for batch in loader:
    batch = {name: value.to(device) for name, value in batch.items()}
    loss = model(**batch, labels=batch["input_ids"]).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
