# SPDX-License-Identifier: Apache-2.0
"""A small module under Lightning's Trainer. Lightning itself saves neither random state nor where a loader is: the loader here has a state,
and each step seeds what it draws."""
import logging
import os

import lightning
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from serve import say, serve

logging.getLogger("lightning.pytorch").setLevel("ERROR")
STEPS, EVERY, KEEP = 14, 2, 2


class Batches:
    """A loader with a state, which Lightning keeps in its checkpoints."""

    def __init__(self):
        self.given = 0

    def __iter__(self):
        while self.given < STEPS:
            self.given += 1
            torch.manual_seed(self.given)
            yield torch.randn(4, 1024)

    def __len__(self):
        return STEPS

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.BatchNorm1d(2048), torch.nn.Dropout(),
                                       torch.nn.Linear(2048, 1024))

    def training_step(self, batch, index):
        torch.manual_seed(self.global_step)
        loss = (self.net(batch) - batch).square().mean()
        say(step=self.global_step + 1, loss=loss.item())
        return loss

    def validation_step(self, batch, index):
        say(validation=self.net(batch).sum().item())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5), "interval": "step"}]

    def on_train_start(self):
        say(start=self.global_step)


class Keep(ModelCheckpoint):
    def _save_checkpoint(self, trainer, path):
        super()._save_checkpoint(trainer, path)
        say(saved=trainer.global_step)

    def _save_last_checkpoint(self, *arguments):
        super()._save_last_checkpoint(*arguments)
        link = os.path.join(self.dirpath, "last.ckpt")
        say(dangling=os.path.lexists(link) and not os.path.exists(link))


def newest(directory):
    found = {int(name[len("step=") : -len(".ckpt")]): name for name in os.listdir(directory) if name.startswith("step=")}
    return os.path.join(directory, found[max(found)]) if found else None


def train(directory, how, resume, names):
    """names: a name that is there already gets another, a link names the newest, and averages of the parameters are swapped in for
    validation."""
    plugins, callbacks, options = [], [], {"save_top_k": KEEP, "monitor": "step", "mode": "max", "filename": "{step}"}
    if how == "adapter":
        import cairnfs.lightning

        plugins.append(cairnfs.lightning.CheckpointIO())
    if names:
        options = {"save_top_k": 1, "filename": "model", "save_last": "link"}
        callbacks.append(EMAWeightAveraging(decay=0.9))
    torch.manual_seed(0)
    callbacks.append(Keep(dirpath=directory, every_n_train_steps=EVERY, save_on_train_epoch_end=False, **options))
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=int(os.environ.get("WORLD_SIZE", "1")), strategy="ddp" if "RANK" in os.environ else "auto",
        logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
        plugins=plugins, default_root_dir=directory, val_check_interval=EVERY, num_sanity_val_steps=0,
    )  # fmt: skip
    path = newest(directory) if resume else None
    trainer.fit(Model(), Batches(), torch.utils.data.DataLoader([torch.ones(1024)]) if names else None, ckpt_path=path)
    say(left=sorted(os.listdir(directory)))


serve(train)
