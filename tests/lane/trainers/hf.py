# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 under the Trainer of transformers. Its dropout and its order of samples are random: they go on where the checkpoint
says."""
import os

import torch
import transformers
from serve import say, serve
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

transformers.logging.set_verbosity_error()
STEPS, EVERY, KEEP = 14, 2, 2


class Told(Trainer):
    def training_step(self, *arguments, **keywords):
        loss = super().training_step(*arguments, **keywords)
        say(step=self.state.global_step + 1, loss=loss.item())
        return loss


class Saves(TrainerCallback):
    def on_train_begin(self, args, state, control, **keywords):
        say(start=state.global_step)

    def on_save(self, args, state, control, **keywords):
        say(saved=state.global_step)


def data():
    torch.manual_seed(1)
    tokens = torch.randint(4096, (64, 32))
    return [{"input_ids": row, "labels": row} for row in tokens]


def train(directory, how, resume, names):
    callbacks = [Saves()]
    if how == "adapter":
        import cairnfs.transformers

        callbacks.append(cairnfs.transformers.Callback())
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=4096, n_positions=32, n_embd=384, n_layer=2, n_head=4))
    arguments = TrainingArguments(
        output_dir=directory, max_steps=STEPS, per_device_train_batch_size=2, save_steps=EVERY, save_total_limit=KEEP, logging_steps=1000,
        report_to=[], use_cpu=True, disable_tqdm=True, seed=5, learning_rate=1e-3,
    )  # fmt: skip
    trainer = Told(model=model, args=arguments, train_dataset=data(), callbacks=callbacks)
    if resume:  # as programs do, by the name that transformers gives it
        from transformers.trainer_utils import get_last_checkpoint

        resume = get_last_checkpoint(directory) is not None
    trainer.train(resume_from_checkpoint=resume or None)
    say(left=sorted(os.listdir(directory)))


serve(train)
