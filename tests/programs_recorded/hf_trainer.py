"""Fine-tuning with the Trainer of transformers, in bfloat16 with gradient accumulation."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict:
        ids = torch.randint(0, 500, (32,))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": index % 2}


config = BertConfig(vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=1, bf16=True,
    learning_rate=5e-5, warmup_steps=2, logging_steps=1, save_strategy="no", report_to="none", dataloader_num_workers=2,
)  # fmt: skip
Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Sentences()).train()
