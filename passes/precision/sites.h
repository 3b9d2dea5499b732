// The layers that may compute in 8 bits, and the tensors that they read. Observing and quantising walk the same graph and
// so find the same sites, under the same keys.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "anchor/anchor.h"

namespace ipex::passes {

// How a tensor was rounded to 8-bit numbers in the model that was given: value = (number - zero_point) * scale.
struct Rounded {
  double scale;
  int64_t zero_point;

  bool operator==(const Rounded&) const = default;
};
// What stands for a rounding that the model was given with, and the same after views, pools and the like. None for other tensors.
std::optional<Rounded> rounding_of(const Value* value);
// The op that stands for such a rounding.
bool is_rounding(const Node* node);

struct Site {
  Anchor anchor;
  // One key for all sites of a block that read the same tensor.
  std::string input_key;
  // The tensor that has the scale: what the site reads, or what that is a piece of, where such layers read all pieces.
  // Then it becomes numbers before it is cut, and all pieces have one scale. Others may read pieces as they read what is shared.
  Value* seen;
  bool reads_piece;
  // Of operands that are added and are made by other sites, for nobody else, or that the given model rounds. None for
  // operands that stay float.
  std::vector<std::optional<std::string>> operand_keys;
};

// An attention whose query, key and value are views of what such layers make, for attentions alone. So these layers give
// 8-bit numbers, and views don't notice.
struct AttentionSite {
  struct Part {
    Value* origin;  // what the layer makes: one tensor may hold query, key and value
    std::string key;
  };
  Node* node;
  Part parts[3];  // query, key, value
};

// A tensor that layers make, and that others than layers read too: concatenations, sums, products and means, whose results
// are rounded in turn. It is rounded for all of them, so that its layer gives 8-bit numbers.
struct SharedSite {
  Value* value;
  std::string key;
};

struct Sites {
  std::vector<Site> layers;
  std::vector<AttentionSite> attentions;
  std::vector<SharedSite> shared;
};

// In the order of the graph. Declines, with the reason, what can't be quantised or was named in float_layers.
Sites quantizable_sites(Context& context);

}  // namespace ipex::passes
