"""Supervised fine-tuning with trl on tokens that are there already."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1, **{f"w{i}": i + 2 for i in range(60)}}, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0
    )
)
data = Dataset.from_dict({"input_ids": [torch.randint(2, 62, (24,)).tolist() for _ in range(32)]})
config = SFTConfig(
    output_dir="out", per_device_train_batch_size=4, max_steps=3, bf16=True, report_to="none", save_strategy="no",
    gradient_checkpointing=True, logging_steps=1,
)  # fmt: skip
SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer).train()
