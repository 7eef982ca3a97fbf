# SPDX-License-Identifier: Apache-2.0
"""Messages of the package: the logger "cairnfs"."""
import logging

logger = logging.getLogger("cairnfs")
_said = set()


def once(text):
    """Warns of this once a process."""
    if text not in _said:
        _said.add(text)
        logger.warning("%s", text)
