// SPDX-License-Identifier: Apache-2.0
/* The completion scripts, made from completion/cairn.SHELL.in by completion/embed.py. */
#pragma once

extern const char completion_bash[], completion_zsh[], completion_fish[];
