// Steps that move whole rows of the last dimension: windows that are cut, shifted, padded, put together.
//
// Steps are those of rearrange.h. What they do to rows is a map, which is computed once for each shape and kept for those seen last.
// So a norm writes each row where it goes, or reads it where it lies, and nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onednn/lru_cache.h"

namespace ipex::runtime {

struct RowMap {
  at::DimVector sizes;           // of the result
  std::vector<int32_t> sources;  // of each row of the result; -1 for zeros
  std::vector<int32_t> targets;  // of each row of the input; -1 where it is cut off
  std::vector<int32_t> zeros;    // rows of the result
  bool keeps_all = true;         // no row is cut off
};

inline size_t known_bytes(const std::optional<RowMap>& map) {
  return map ? (map->sources.size() + map->targets.size() + map->zeros.size()) * sizeof(int32_t) : 0;
}

class RowMoves : public torch::CustomClassHolder {
 public:
  RowMoves(std::vector<std::string> steps, std::vector<int64_t> counts);

  // Null where the steps don't keep these rows whole, or are no steps for these sizes.
  std::shared_ptr<const RowMap> map(at::IntArrayRef sizes, at::IntArrayRef numbers) const;

  // As eager computes it, whatever the steps do.
  at::Tensor step_by_step(const at::Tensor& x, at::IntArrayRef numbers) const;

  const std::vector<std::string>& steps() const { return steps_; }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  // A server sees few shapes in turn, and many never come again.
  static constexpr size_t most_shapes = 4, most_bytes = size_t{64} << 20;

  std::vector<std::string> steps_;
  std::vector<int64_t> counts_;
  // By sizes, and the numbers behind them. Empty where there is no map.
  mutable LruCache<at::DimVector, std::optional<RowMap>> maps_{most_shapes, most_bytes};
};

// The moves of one call. Nothing is moved where there are none.
class MovedRows {
 public:
  MovedRows() = default;
  MovedRows(const RowMoves& moves, at::IntArrayRef numbers, at::IntArrayRef sizes)
      : moves_(&moves), numbers_(numbers), map_(moves.map(sizes, numbers)) {}

  bool moves() const { return moves_ != nullptr; }
  // Null where the rows stay, and where they are no rows.
  const RowMap* map() const { return map_.get(); }
  int64_t source(int64_t row) const { return map_ ? map_->sources[static_cast<size_t>(row)] : row; }
  int64_t target(int64_t row) const { return map_ ? map_->targets[static_cast<size_t>(row)] : row; }
  at::Tensor step_by_step(const at::Tensor& x) const { return moves_ ? moves_->step_by_step(x, numbers_) : x; }

 private:
  const RowMoves* moves_ = nullptr;
  at::IntArrayRef numbers_;
  std::shared_ptr<const RowMap> map_;
};

}  // namespace ipex::runtime
