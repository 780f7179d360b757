"""A LightningModule under its Trainer: float16, clipping, a logged loss, validation and early stopping."""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.layers(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


data = TensorDataset(torch.randn(96, 20), torch.randint(0, 3, (96,)))
trainer = L.Trainer(
    max_epochs=3, accelerator="gpu", devices=1, precision="16-mixed", gradient_clip_val=1.0, logger=False,
    enable_checkpointing=False, callbacks=[EarlyStopping("val_loss")], num_sanity_val_steps=0,
)  # fmt: skip
trainer.fit(Classifier(), DataLoader(data, batch_size=16, num_workers=2), DataLoader(data, batch_size=32))
