# SPDX-License-Identifier: Apache-2.0
"""tally for PyTorch on CPUs: all ten hooks of DistributedDataParallel, every other hook of tally,
and the backend "tally" of torch.distributed. docs/pytorch.md is the guide.

    from tally.torch import DDPCommHookType, register_ddp_comm_hook
    register_ddp_comm_hook(DDPCommHookType.BF16_COMPRESS, model, state=process_group)
"""

from .._library import TallyError
from .backend import TallyProcessGroup, init_process_group
from .hooks import DDPCommHookType, Hook, hook, register_ddp_comm_hook

__all__ = ["DDPCommHookType", "Hook", "TallyError", "TallyProcessGroup", "hook",
           "init_process_group", "register_ddp_comm_hook"]
