"""The loops of ``chain_steps``, compiled."""

from __future__ import annotations

from statestore.formats.kernels import chain_steps
from statestore.formats.kernels.compiled import kernel

replay_chains = kernel(chain_steps.replay_chains)
measure_chains = kernel(chain_steps.measure_chains)
copy_chains = kernel(chain_steps.copy_chains)
