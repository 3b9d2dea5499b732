// Rows of the last dimension that move, by the steps of row_moves.h.
//
//   ipex::row_moves_prepack(steps, counts) -> RowMoves
//   ipex::move_rows(x, moves, numbers) -> Tensor    the steps, with one copy
//   ipex::padded_size(a, b, pads, dimension) -> int    of what aten::pad would give of a, or where there is a b, of their sum
//   ipex::padded_number(number, rank, pads, dimension) -> int    of what has this number of dimensions and this size
//
// Where the steps don't keep rows whole, and for what is no plain tensor on the CPU or is to be differentiated, they are taken one by one.
#include "ops/layout/row_moves.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <tuple>

#include "memory/result_memory.h"
#include "ops/layout/rearrange.h"
#include "packed/call_conditions.h"
#include "packed/damaged.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "packed/safe_product.h"
#include "packed/short_runs.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::IntArrayRef;
using at::Tensor;

// The numbers of rows where the steps leave them. Steps are taken on a tensor without the last dimension, which is `width` elements.
class NumberedRows {
 public:
  explicit NumberedRows(IntArrayRef sizes) : width_(sizes.back()) {
    const IntArrayRef outer = sizes.slice(0, sizes.size() - 1);
    numbers_ = at::arange(c10::multiply_integers(outer), at::kInt).view(outer);
  }

  // False where the step is none for these sizes, or cuts rows.
  bool take(const std::string& step, IntArrayRef own) {
    if (step == "reshape") return reshape(own);
    if (step == "permute") return permute(own);
    if (step == "contiguous") return true;
    if (step == "roll") return roll(own);
    if (step == "pad") return pad(own);
    if (step == "slice") return own.size() == 4 && slice(own[0], own[1], own[2], own[3]);
    if (step == "unsqueeze") return own.size() == 1 && unsqueeze(own[0]);
    if (own.size() != 2 || (step != "flatten" && step != "transpose")) return false;
    const int64_t a = counted(own[0]), b = counted(own[1]);
    if (!is_outer(a) || !is_outer(b)) return false;
    numbers_ = step == "flatten" ? numbers_.flatten(a, b) : numbers_.transpose(a, b);
    return true;
  }

  RowMap map() const {
    RowMap map{at::DimVector(numbers_.sizes()), {}, {}, {}};
    map.sizes.push_back(width_);
    const Tensor laid_out = numbers_.contiguous();
    const auto* sources = laid_out.const_data_ptr<int32_t>();
    map.sources.assign(sources, sources + laid_out.numel());
    return map;
  }

 private:
  int64_t rank() const { return numbers_.dim() + 1; }
  int64_t counted(int64_t dimension) const { return dimension < 0 ? dimension + rank() : dimension; }
  bool is_outer(int64_t dimension) const { return dimension >= 0 && dimension < rank() - 1; }

  bool reshape(IntArrayRef asked) {
    if (asked.empty()) return false;
    at::DimVector to(asked);
    const auto unknown = std::find(to.begin(), to.end(), -1);
    if (unknown != to.end()) {
      *unknown = 1;
      const auto others = safe_product(to);
      if (!others || *others <= 0) return false;
      *unknown = numbers_.numel() * width_ / *others;
    }
    if (to.back() != width_) return false;
    to.pop_back();
    numbers_ = numbers_.reshape(to);
    return true;
  }

  bool permute(IntArrayRef order) {
    if (static_cast<int64_t>(order.size()) != rank() || counted(order.back()) != rank() - 1) return false;
    at::DimVector outer;
    for (const int64_t d : order.slice(0, order.size() - 1)) outer.push_back(counted(d));
    numbers_ = numbers_.permute(outer);
    return true;
  }

  bool roll(IntArrayRef own) {
    const size_t count = own.size() / 2;
    at::DimVector dimensions;
    for (const int64_t d : own.slice(count)) dimensions.push_back(counted(d));
    if (dimensions.empty() ||
        !std::all_of(dimensions.begin(), dimensions.end(), [&](int64_t d) { return is_outer(d); }))
      return false;
    numbers_ = at::roll(numbers_, own.slice(0, count), dimensions);
    return true;
  }

  bool pad(IntArrayRef pads) {
    if (pads.size() < 2 || pads[0] != 0 || pads[1] != 0) return false;
    numbers_ = at::constant_pad_nd(numbers_, pads.slice(2), -1);
    return true;
  }

  bool slice(int64_t dimension, int64_t start, int64_t end, int64_t step) {
    const int64_t d = counted(dimension);
    if (d == rank() - 1) return start == 0 && end >= width_ && step == 1;  // all of it
    if (!is_outer(d)) return false;
    numbers_ = numbers_.slice(d, start, end, step);
    return true;
  }

  bool unsqueeze(int64_t dimension) {
    const int64_t d = dimension < 0 ? dimension + rank() + 1 : dimension;
    if (!is_outer(d)) return false;
    numbers_ = numbers_.unsqueeze(d);
    return true;
  }

  int64_t width_;
  Tensor numbers_;
};

// Empty where the steps are none for these sizes, which eager then refuses itself.
std::optional<RowMap> compute(const RowMoves& moves, IntArrayRef sizes, IntArrayRef numbers) {
  // A map holds two numbers for each row, and is kept: for more of them, steps that keep few rows would hold memory for nothing.
  constexpr int64_t most_rows = 1 << 22;
  const int64_t elements = c10::multiply_integers(sizes);
  if (sizes.size() < 2 || elements == 0 || elements / sizes.back() > most_rows) return {};
  std::optional<RowMap> map;
  try {
    const OutsideOfPythonModes guard;
    NumberedRows rows(sizes);
    const auto take = [&](const std::string& step, IntArrayRef own) { return rows.take(step, own); };
    if (for_each_step(moves.steps(), moves.counts(), numbers, take)) map = rows.map();
  } catch (const c10::Error&) {
    return {};
  }
  if (!map || map->sources.empty()) return {};
  map->targets.assign(static_cast<size_t>(elements / sizes.back()), -1);
  for (size_t row = 0; row < map->sources.size(); ++row) {
    const int32_t source = map->sources[row];
    source < 0 ? map->zeros.push_back(static_cast<int32_t>(row))
               : static_cast<void>(map->targets[static_cast<size_t>(source)] = static_cast<int32_t>(row));
  }
  map->keeps_all = std::find(map->targets.begin(), map->targets.end(), -1) == map->targets.end();
  return map;
}

void copy_row(char* to, const char* from, int64_t bytes) {
  constexpr int64_t longest_short_row = 256;
  if (bytes <= longest_short_row) return copy_short_run(to, from, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

Tensor move_rows(const Tensor& x, const c10::intrusive_ptr<RowMoves>& moves, IntArrayRef numbers) {
  const bool is_plain = is_plain_cpu(x) && x.layout() == at::kStrided && !x.is_quantized() && !wants_gradient(x);
  const auto map = is_plain ? moves->map(x.sizes(), numbers) : nullptr;
  if (!map) return moves->step_by_step(x, numbers);
  const std::optional<int64_t> stride = row_stride(x, 1);
  const Tensor source = stride ? x : contiguous_result(x);
  const Tensor y = empty_result(map->sizes, x.options());
  const auto size = static_cast<int64_t>(x.element_size());
  const int64_t bytes = map->sizes.back() * size, distance = stride ? *stride * size : bytes;
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(y.mutable_data_ptr());
  const auto rows = static_cast<int64_t>(map->sources.size());
  constexpr int64_t elements_worth_waking = 32768;
  parallel_for(rows, grain_of(rows, y.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t place = map->sources[static_cast<size_t>(row)];
      char* const own = to + row * bytes;
      place < 0 ? static_cast<void>(std::memset(own, 0, static_cast<size_t>(bytes)))
                : copy_row(own, from + place * distance, bytes);
    }
  });
  return y;
}

// Pads count dimensions from the last one.
int64_t padded_number(int64_t number, int64_t rank, IntArrayRef pads, int64_t dimension) {
  const auto at = static_cast<size_t>(2 * (rank - 1 - at::maybe_wrap_dim(dimension, rank)));
  return number + (at + 1 < pads.size() ? pads[at] + pads[at + 1] : 0);
}

int64_t padded_size(const Tensor& a, const std::optional<Tensor>& b, IntArrayRef pads, int64_t dimension) {
  const at::DimVector sizes = b ? at::infer_size_dimvector(a.sizes(), b->sizes()) : at::DimVector(a.sizes());
  const auto rank = std::ssize(sizes);
  const int64_t number = sizes[static_cast<size_t>(at::maybe_wrap_dim(dimension, rank))];
  return padded_number(number, rank, pads, dimension);
}

}  // namespace

RowMoves::RowMoves(std::vector<std::string> steps, std::vector<int64_t> counts)
    : steps_(std::move(steps)), counts_(std::move(counts)) {
  TORCH_CHECK(
      steps_.size() == counts_.size() && std::all_of(counts_.begin(), counts_.end(), [](int64_t n) { return n >= 0; }),
      "ipex::row_moves_prepack: expected a count for each of ", steps_.size(), " steps, got ", counts_, damaged);
}

std::shared_ptr<const RowMap> RowMoves::map(IntArrayRef sizes, IntArrayRef numbers) const {
  TORCH_CHECK(std::accumulate(counts_.begin(), counts_.end(), int64_t{0}) == std::ssize(numbers),
              "ipex::move_rows: expected ", counts_, " numbers for its steps, got ", numbers.size(), damaged);
  at::DimVector key(sizes);
  key.append(numbers.begin(), numbers.end());
  const auto found = maps_.get(key, [&] { return compute(*this, sizes, numbers); });
  return *found ? std::shared_ptr<const RowMap>(found, &**found) : nullptr;
}

Tensor RowMoves::step_by_step(const Tensor& x, IntArrayRef numbers) const {
  return rearrange(x, steps_, counts_, numbers);
}

namespace {

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  using Pointer = c10::intrusive_ptr<RowMoves>;
  using State = std::tuple<std::vector<std::string>, std::vector<int64_t>>;
  const auto describe = [](const Pointer& moves) {
    return c10::str("ipex::move_rows(", c10::Join(", ", moves->steps()), ")");
  };
  m.class_<RowMoves>("RowMoves")
      .def("describe", describe)
      .def("__repr__", describe)
      .def_pickle(
          [](const Pointer& moves) { return State(moves->steps(), moves->counts()); },
          [](const State& state) { return c10::make_intrusive<RowMoves>(std::get<0>(state), std::get<1>(state)); });
  define(m, "row_moves_prepack(str[] steps, int[] counts) -> __torch__.torch.classes.ipex.RowMoves",
         [](std::vector<std::string> steps, std::vector<int64_t> counts) {
           return c10::make_intrusive<RowMoves>(std::move(steps), std::move(counts));
         });
  define(m, "move_rows(Tensor(a) x, __torch__.torch.classes.ipex.RowMoves moves, int[] numbers) -> Tensor(a)",
         move_rows);
  define(m, "padded_size(Tensor a, Tensor? b, int[] pads, int dimension) -> int", padded_size);
  define(m, "padded_number(int number, int rank, int[] pads, int dimension) -> int", padded_number);
}

}  // namespace
}  // namespace ipex::runtime
