"""Calls that fit of ops that graphs of models do not hold: those that pack, and those of rare graphs."""

from __future__ import annotations

from typing import Any

import torch

NO_NUMBERS: list[float] = []
GEOMETRY = ([1, 1], [1, 1], [1, 1], 1)
OF_BYTES = ([1, 1], [1, 1, 1, 1], [1, 1], 1)  # a padding for each side


def _recurrent(gates: int) -> list[torch.Tensor]:
    return [torch.randn(gates * 8, 6), torch.randn(gates * 8, 8), torch.randn(gates * 8), torch.randn(gates * 8)]


def examples() -> dict[str, list[Any]]:
    """Arguments by the name of an overload."""
    rand, ints = torch.randn, torch.randint
    ops = torch.ops.ipex
    weight, image = rand(8, 4, 3, 3), rand(2, 4, 6, 6)
    codes = ints(0, 255, (8, 8), dtype=torch.uint8)  # two in each
    values = ops.round_weight(torch.ones(1, 8), "nf4", 0, True)[3]
    bytes_ = ints(0, 255, (2, 4, 6, 6), dtype=torch.uint8)
    heads = [rand(2, 3, 5, 8) for _ in range(3)]
    byte_heads = [ints(0, 255, (2, 3, 5, 8), dtype=torch.uint8) for _ in range(3)]
    scales = [0.1, 3.0, 0.1, 3.0, 0.1, 3.0]
    moves = ops.row_moves_prepack(["roll"], [2])
    of_codes = ops.weight_only_linear_prepack.default(rand(8, 32), rand(8), [], "int4", 32, True)
    matrices = [torch.stack([codes, codes]), rand(2, 8, 1), None, 16, 16]
    linear = ops.linear_prepack(rand(8, 4), rand(8), [], None, None, None)
    convolution = ops.convolution_prepack(weight, rand(8), *GEOMETRY, False, [0, 0], [], None, None, None)
    pixels = ops.convolution_prepack(
        rand(8, 4, 1, 1), rand(8), [1, 1], [0, 0], [1, 1], 1, False, [0, 0], [], None, None, None
    )
    depthwise = ops.convolution_prepack(
        rand(8, 1, 3, 3), rand(8), [1, 1], [1, 1], [1, 1], 8, False, [0, 0], [], None, None, None
    )
    squeeze = ops.convolution_prepack(
        rand(2, 8, 1, 1), rand(2), [1, 1], [0, 0], [1, 1], 1, False, [0, 0], ["relu"], None, None, None
    )
    spread = ops.convolution_prepack(
        rand(8, 2, 1, 1), rand(8), [1, 1], [0, 0], [1, 1], 1, False, [0, 0], ["sigmoid"], None, None, None
    )
    whole = ints(-127, 127, (8, 4, 3, 3), dtype=torch.int8)
    quantized = ops.quantized_convolution_prepack(
        whole, rand(8).abs(), None, *OF_BYTES, [], [0.1, 3.0], [0.1, 3.0], NO_NUMBERS
    )
    quantized_linear = ops.quantized_linear_prepack(
        ints(-127, 127, (8, 4), dtype=torch.int8), rand(8).abs(), None, [], [0.1, 3.0], [0.1, 3.0], NO_NUMBERS
    )
    dynamic = ops.dynamic_linear_prepack(rand(8, 16), rand(8), [])
    lstm = ops.lstm_prepack(_recurrent(4), True, 1, False, False, None)
    gru = ops.gru_prepack(_recurrent(3), True, 1, False, False, None)
    rounded, ranges = ops.round_rows(rand(30, 8))
    statistics = [rand(8), rand(8), rand(8), rand(8).abs()]
    byte_attention = [*byte_heads, None, 0.0, False, None, False, scales]
    keys = [rand(2, 3, 6, 8) for _ in range(2)]  # in a grid of 2 by 3
    sides = [torch.zeros(()).expand(2, 3, 5, 6), rand(2, 3, 5, 2, 1), rand(2, 3, 5, 1, 3)]
    return {
        "linear_prepack.default": [rand(8, 4), rand(8), ["relu"], None, None, None, None, False],
        "convolution_prepack.default": [
            *(weight, rand(8), *GEOMETRY, False, [0, 0], ["relu"], None, None, None),
            *(None, False, False, False, False),
        ],
        "lstm_prepack.default": [_recurrent(4), True, 1, False, False, None],
        "gru_prepack.default": [_recurrent(3), True, 1, False, False, None],
        "dynamic_linear_prepack.default": [rand(8, 16), rand(8), []],
        "dynamic_lstm_prepack.default": [_recurrent(4), True, 1, False, False],
        "dynamic_gru_prepack.default": [_recurrent(3), True, 1, False, False],
        "weight_only_linear_prepack.default": [rand(8, 16), rand(8), [], "int4", 16, True],
        "weight_only_linear_prepack.codes": [codes, rand(8, 1), None, None, rand(8), [], 16, 16, values],
        "weight_only_linear_prepack.again": [of_codes, ["relu"], 16],
        "rows_of_codes.default": [torch.tensor([[0, 7], [3, 3]]), of_codes],
        "weight_only_linear.default": [rand(3, 16), codes, rand(8, 1), None, None, rand(8), 16, 16, values],
        "quantized_linear_prepack.default": [
            *(ints(-127, 127, (8, 4), dtype=torch.int8), rand(8).abs(), rand(8), ["relu"]),
            *([0.1, 3.0], [0.1, 3.0], NO_NUMBERS),
        ],
        "quantized_convolution_prepack.default": [
            *(whole, rand(8).abs(), None, *OF_BYTES, ["relu"], [0.1, 3.0], [0.1, 3.0], NO_NUMBERS, False, []),
        ],
        "quantized_convolution_run.default": [bytes_, quantized, [], True, [1, 1, 1, 1]],
        "quantized_linear_run.default": [codes[:, :4].contiguous(), quantized_linear, [], True],
        "dynamic_linear_run.default": [rand(3, 16), dynamic, [], True],
        "matmul_prepack.default": [["relu"], None],
        "observer_prepack.default": ["key", rand(3)],
        "packed_linear.default": [rand(3, 4), linear, 8],
        "packed_embedding.default": [torch.tensor([[0, 7], [3, 3]]), linear, 4, "float32"],
        "packed_convolution.default": [image, convolution, [8, 4, 3, 3], *GEOMETRY, False, [0, 0], False],
        "packed_lstm.default": [rand(5, 2, 6), rand(1, 2, 8), rand(1, 2, 8), lstm, 8],
        "packed_gru.default": [rand(5, 2, 6), rand(1, 2, 8), gru, 8],
        "excitation_run.default": [rand(2, 8, 5, 5), ops.excitation_prepack([squeeze, spread]), [2, 3]],
        "excitation_prepack.default": [[squeeze, spread]],
        "convolution_chain_prepack.default": [[pixels, depthwise]],
        "linear_chain_prepack.default": [[linear, ops.linear_prepack(rand(3, 8), None, [], None, None, None)]],
        "joined_linears_prepack.default": [[linear, linear]],
        "joined_linears_prepack.codes": [[of_codes, of_codes]],
        "joined_linears_run.codes": [rand(3, 32), ops.joined_linears_prepack.codes([of_codes, of_codes]), [-1, -1]],
        "grouped_linear_prepack.default": [[linear, linear]],
        "grouped_linear_run.default": [
            *(rand(6, 4), torch.tensor([2, 6], dtype=torch.int32), ops.grouped_linear_prepack([linear, linear])),
        ],
        "grouped_linear_prepack.codes": matrices,
        "grouped_linear_prepack.again": [ops.grouped_linear_prepack.codes(*matrices), 16],
        "rows_by_expert.default": [rand(3, 8), torch.tensor([[1, 0], [2, 1], [0, 2]]), 3],
        "sum_of_experts.default": [rand(6, 8), torch.tensor([1, 4, 0, 3, 2, 5]), rand(3, 2)],
        "grouped_linear_run.codes": [
            *(rand(6, 16), torch.tensor([2, 6], dtype=torch.int32), ops.grouped_linear_prepack.codes(*matrices)),
        ],
        "grouped_weight_only_linear.default": [rand(6, 16), torch.tensor([2, 6], dtype=torch.int32), *matrices],
        "row_moves_prepack.default": [["roll"], [2]],
        "move_rows.default": [image, moves, [1, 2]],
        "round_rows.default": [rand(30, 8)],
        "round_weight.default": [rand(8, 16), "nf4", 8, True],
        "embedding_in_int8.default": [rounded, ranges, ints(0, 30, (2, 3))],
        "embedding_bag_in_int8.default": [
            *(rounded, ranges, ints(0, 30, (6,)), torch.tensor([0, 2, 4]), 0, None, False, None),
        ],
        "look_up.default": [rand(30, 8), ints(0, 30, (2, 3)), -1, False, False],
        "cached_attention.default": [
            *(heads[0], rand(2, 3, 4, 8), rand(2, 3, 1, 8), rand(2, 3, 4, 8), rand(2, 3, 1, 8)),
            *(2, None, 0.0, False, None, False, None),
        ],
        "cache_mask.default": [heads[0][:, 0], torch.tensor(2), torch.ones(2, 7, dtype=torch.bool), 3],
        "attend_cached.default": [
            *(torch.zeros(2, 3, 8, 24, dtype=torch.int8), *heads, torch.tensor(2)),
            *(torch.empty(0, dtype=torch.bool), None, 0),
        ],
        "attend_paged.default": [
            *(rand(4, 2, 8, 24), rand(5, 4, 8), rand(5, 2, 8), rand(5, 2, 16), torch.arange(9, 14)),
            *(torch.tensor([[1, 2], [3, 0]], dtype=torch.int32), torch.tensor([0, 4, 5], dtype=torch.int32)),
            *(torch.tensor([5, 9], dtype=torch.int32), None, 3),
        ],
        "attention_in_a_grid.default": [heads[0], *keys, *sides, 0.0, False, None, False, None],
        "scaled_dot_product_attention_of_bytes.default": byte_attention,
        "scaled_dot_product_attention_of_bytes.bytes": [*byte_attention, 0.1, 3],  # an older name
        "sampled_sum.default": [[rand(2, 3, 6, 6)], [rand(2, 4, 5, 2)], rand(2, 1, 4, 5), 0, 0, False, False],
        "trained_convolution.default": [image, weight, rand(8), [1, 1]],
        "trained_convolution_pays.default": [image, weight, [1, 1]],
        "has_trained_convolution.default": [64, 64],
        "native_group_norm.default": [rand(2, 8, 5, 5), rand(8), rand(8), 2, 8, 25, 4, 1e-5, []],
        "cat_batch_norm.bytes": [[rand(2, 4, 5, 5), rand(2, 4, 5, 5)], *statistics, 1e-5, True, 0.1, 3],
        "dequantize.default": [bytes_, 0.1, 3],
        "requantize.default": [bytes_, 0.1, 3, 0.2, 4],
        "adaptive_avg_pool2d.of_bytes": [bytes_, [1, 1], 0.1, 3],
        "mean.of_bytes": [bytes_, [2, 3], True, 0.1, 3],
        "elementwise.default": [
            *([bytes_, image], ["mul 0 1"], [False, True], [0.1, 3.0, 0.0, 0.0], None, [0.1, 3.0], True, 1),
        ],
        "elementwise.several": [[image], ["relu 0", "exp 1"], [1, 2], [True], [], None, [0.1, 3.0, 0.0, 0.0]],
        "elementwise.sum": [[bytes_, image], ["mul 0 1"], [1], False, True, [], [0.1, 3.0, 0.0, 0.0], None, []],
        "elementwise.bytes": [[image], ["relu 0"], 0.1, 3],
        "elementwise.of_bytes": [[bytes_, image], ["mul 0 1"], [0.1, 3.0, 0.0, 0.0], []],
        "einsum_factor.sizes": [rand(2, 3), [2, 3], 2],
        "split_weight.default": [rand(4, 4)],
        "join_weight.default": [rand(4, 4).bfloat16(), ints(0, 100, (4, 4), dtype=torch.int16)],
        "remember.default": [ops.shape_memo_prepack(), [2, 3], [rand(2)]],
        "recall.default": [ops.shape_memo_prepack(), [2, 3]],
        "padded_number.default": [5, 4, [1, 1], 2],
        "erf_gelu.default": [rand(3, 4)],
    }
