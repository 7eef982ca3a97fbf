# SPDX-License-Identifier: Apache-2.0
"""A training with accelerate, which calls save_state() for each step until it is killed: accelerated.py DIRECTORY."""
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

KEEP = 3
accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=sys.argv[1], automatic_checkpoint_naming=True,
                                                                        total_limit=KEEP))
model = torch.nn.Linear(1024, 4096)
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
while True:
    accelerator.backward(model(torch.ones(1, 1024)).sum())
    optimizer.step()
    scheduler.step()
    accelerator.save_state()
    os.write(1, b"saved\n")
