#include <ipex/op_table.h>

#include "ops/op_table.h"

namespace ipex {
namespace {

const char* to_string(passes::Memory memory) {
  switch (memory) {
    case passes::Memory::unknown:
      return "unknown";
    case passes::Memory::fresh:
      return "fresh";
    case passes::Memory::view:
      return "view";
    case passes::Memory::maybe_view:
      return "maybe_view";
    case passes::Memory::itself:
      return "itself";
    case passes::Memory::no_tensor:
      return "no_tensor";
  }
  return "";
}

const char* to_string(passes::Writes writes) {
  switch (writes) {
    case passes::Writes::nothing:
      return "nothing";
    case passes::Writes::elements:
      return "elements";
    case passes::Writes::shape:
      return "shape";
  }
  return "";
}

}  // namespace

std::vector<OpFacts> op_table() {
  std::vector<OpFacts> facts;
  for (const passes::Op& op : passes::op_table()) {
    facts.push_back({op.name, op.overload, to_string(op.memory), to_string(op.writes), std::string(op.left)});
  }
  return facts;
}

}  // namespace ipex
