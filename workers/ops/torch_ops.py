"""The operations in plain torch: any device, weights in float32 or bfloat16, activations in float32.

The reference the CPU kernels are tested against, and the way to run where they do not (CUDA). Bits of a row may
depend on the batch here: torch chooses its matrix product by shape.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from workers.ops.protocol import Float32, Int64


@dataclass(frozen=True, slots=True)
class TorchLinear:
    weight: torch.Tensor
    bias: torch.Tensor | None


class TorchOps:
    """`dtype` is that of the weights and of matrix products; sums over ranks and norms stay float32."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self._device = torch.device(device)
        self._dtype = dtype

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None) -> TorchLinear:
        return TorchLinear(self._own(weight), None if bias is None else self._own(bias))

    def table(self, weight: torch.Tensor) -> torch.Tensor:
        return self._own(weight)

    def vector(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.to(self._device, torch.float32, copy=True)

    def _own(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.to(self._device, self._dtype, copy=True).contiguous()

    def buffer(self, num_rows: int, num_columns: int) -> torch.Tensor:
        return torch.zeros(num_rows, num_columns, dtype=torch.float32, device=self._device)

    def rows(self, x: torch.Tensor, num_rows: int) -> torch.Tensor:
        return x[:num_rows]

    def embed(self, tokens: torch.Tensor, table: torch.Tensor, first_token: int, out: torch.Tensor) -> None:
        local = tokens.long() - first_token
        held = (local >= 0) & (local < table.shape[0])
        out.copy_(table[local.clamp(0, table.shape[0] - 1)] * held[:, None])

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor) -> None:
        torch.mul(x, torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps), out=out)
        out.mul_(weight)

    def linear(self, x: torch.Tensor, packed: TorchLinear, out: torch.Tensor) -> None:
        out.copy_(F.linear(x.to(self._dtype), packed.weight, packed.bias))

    def silu_mul(self, gate_up: torch.Tensor, out: torch.Tensor) -> None:
        gate, up = gate_up.chunk(2, dim=-1)
        torch.mul(F.silu(gate), up, out=out)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    def take_rows(self, x: torch.Tensor, row_ids: torch.Tensor, out: torch.Tensor) -> None:
        torch.index_select(x, 0, row_ids, out=out)

    def argmax_rows(self, x: torch.Tensor) -> tuple[Float32, Int64]:
        best = x.max(dim=-1)
        # `max` promises no order among equals; the mask finds the first.
        first = (x == best.values[:, None]).int().argmax(dim=-1)
        return best.values.cpu().numpy(), first.cpu().numpy().astype(np.int64)

    def to_host(self, x: torch.Tensor) -> Float32:
        host: Float32 = x.detach().cpu().numpy()
        return host

    def from_host(self, x: Float32) -> torch.Tensor:
        return torch.from_numpy(x).to(self._device)
