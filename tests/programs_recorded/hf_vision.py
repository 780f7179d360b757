"""A vision transformer from its configuration, with autocast and an evaluation."""

import torch
from transformers import ViTConfig, ViTForImageClassification

model = ViTForImageClassification(
    ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    pixels, labels = torch.randn(8, 3, 32, 32).cuda(), torch.randint(5, (8,)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(pixel_values=pixels, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    print(model(pixel_values=torch.randn(2, 3, 32, 32).cuda()).logits.argmax(-1).shape)
