"""A T5 with the Trainer for sequences: gradient checkpointing and Adafactor, float32."""

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

config = T5Config(vocab_size=300, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0)
examples = [{"input_ids": torch.randint(2, 300, (24,)), "labels": torch.randint(2, 300, (12,))} for _ in range(32)]
arguments = Seq2SeqTrainingArguments(
    output_dir="out", per_device_train_batch_size=8, max_steps=4, gradient_checkpointing=True, optim="adafactor",
    logging_steps=1, save_strategy="no", report_to="none", max_grad_norm=1.0,
)  # fmt: skip
Seq2SeqTrainer(model=T5ForConditionalGeneration(config), args=arguments, train_dataset=examples).train()
