#include "kernels/kernels.h"

#include <optional>

#include "isa/isa.h"

namespace ipex::runtime {
namespace {

using isa::Level;

struct Compiled {
  Level level;
  const Kernels& kernels;
};

// From the best down.
const Compiled compiled[] = {
    {Level::AVX512, avx512::kernels}, {Level::AVX2, avx2::kernels}, {Level::DEFAULT, portable::kernels}};

// An optional family, and the level whose instructions it has.
struct Family {
  Level level;
  std::optional<Level> until;  // a level that has something better
  void (*add_to)(Kernels&);

  bool belongs_to(Level used) const { return !until || used < *until; }
};

const Family families[] = {{Level::AVX2_VNNI, Level::AVX512,
                            [](Kernels& kernels) {
                              kernels.bytes_product = avx2_vnni::bytes_product;
                              kernels.codes_product = avx2_vnni::codes_product;
                              kernels.byte_attention = avx2_vnni::byte_attention;
                            }},
                           {Level::AVX512_VNNI, std::nullopt,
                            [](Kernels& kernels) {
                              kernels.bytes_product = avx512_vnni::bytes_product;
                              kernels.codes_product = avx512_vnni::codes_product;
                              kernels.byte_attention = avx512_vnni::byte_attention;
                            }},
                           {Level::AVX512_BF16, std::nullopt,
                            [](Kernels& kernels) {
                              if (!isa::has_fast_avx512_bf16()) return;
                              kernels.optional.pairs_product = &avx512_bf16::pairs_product;
                              kernels.optional.attention_of_pairs = &avx512_bf16::attention;
                            }},
                           {Level::AMX, std::nullopt, [](Kernels& kernels) {
                              if (!isa::may_use_tiles()) return;
                              kernels.optional.pairs_product = &amx::pairs_product;
                              kernels.optional.tile_attention = &amx::tile_attention;
                              kernels.bytes_product = amx::bytes_product;
                              kernels.byte_attention = amx::byte_attention;
                              kernels.optional.byte_tiles = &amx::byte_tiles;
                              kernels.optional.tile_product = &amx::tile_product;
                            }}};

Kernels best_kernels() {
  const Level level = isa::level_in_use();
  const Compiled* first = compiled;
  while (first->level > level) ++first;
  Kernels best = first->kernels;
  for (const Family& family : families) {
    if (family.belongs_to(level) && isa::is_in_use(family.level)) family.add_to(best);
  }
  return best;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels best = best_kernels();
  return best;
}

}  // namespace ipex::runtime

namespace ipex::isa {

Level highest_binary() { return runtime::compiled[0].level; }

std::vector<Level> optional_families() {
  std::vector<Level> found;
  for (const runtime::Family& family : runtime::families) {
    if (family.belongs_to(current()) && has(family.level)) found.push_back(family.level);
  }
  return found;
}

}  // namespace ipex::isa
