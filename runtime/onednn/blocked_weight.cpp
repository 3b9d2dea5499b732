#include "onednn/blocked_weight.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "memory/memory_pages.h"
#include "memory/weight_memory.h"
#include "onednn/engine.h"
#include "onednn/making.h"
#include "onednn/no_memory.h"

namespace ipex::runtime {
namespace {

using dnnl::memory;

std::string blob_of(memory::desc layout) {
  const std::vector<uint8_t> blob = layout.get_blob();
  return {blob.begin(), blob.end()};
}

// The bytes of equal layouts may differ, where no number lies.
bool is_blob_of(const std::string& blob, const memory::desc& layout) {
  return blob.size() == blob_of(layout).size() &&
         memory::desc(std::vector<uint8_t>(blob.begin(), blob.end())) == layout;
}

at::Tensor bytes(size_t count) { return empty_weight({static_cast<int64_t>(count)}, at::kByte); }

void reorder(const memory::desc& from, void* source, const memory::desc& to, void* target) {
  const Making making;
  memory source_memory(from, engine(), source);
  memory target_memory(to, engine(), target);
  make_primitive<dnnl::reorder>(source_memory, target_memory).execute(stream(), source_memory, target_memory);
  stream().wait();
}

// Of a linear's weight: blocks of some rows and columns, one below the other. Then neither their height nor where one ends
// matters. Of a convolution's whose windows are single pixels: blocks of output channels.
std::optional<Panels> panels_of(const memory::desc& desc, const at::Tensor& bytes) {
  using dims = memory::dims;
  if (desc.get_data_type() != memory::data_type::f32 || desc.get_submemory_offset() != 0) return std::nullopt;
  const auto* data = static_cast<const float*>(bytes.const_data_ptr());
  const dims block = desc.get_inner_blks(), strides = desc.get_strides(), padded = desc.get_padded_dims();
  if (desc.get_ndims() == 2 && desc.get_inner_idxs() == dims{0, 1}) {
    const bool is_one_below_the_other = strides[0] == block[0] * block[1] || padded[0] == block[0];
    if (!is_one_below_the_other || strides[1] != padded[0] * block[1]) return std::nullopt;
    return Panels{data, block[1], strides[1]};
  }
  if (desc.get_ndims() == 4 && desc.get_inner_idxs() == dims{0} && padded[2] == 1 && strides[1] == block[0]) {
    // Tap after tap.
    const int64_t tap = padded[1] * block[0], channels = desc.get_dims()[1];
    const bool are_dense = padded[3] == 1 || (strides[3] == tap && padded[1] == channels);
    if (are_dense && strides[0] == padded[3] * tap) return Panels{data, block[0], strides[0]};
  }
  return std::nullopt;
}

std::optional<PairPanels> pair_panels_of(const memory::desc& desc, const at::Tensor& bytes) {
  using dims = memory::dims;
  if (desc.get_data_type() != memory::data_type::bf16 || desc.get_submemory_offset() != 0) return std::nullopt;
  const dims block = desc.get_inner_blks(), strides = desc.get_strides(), padded = desc.get_padded_dims();
  if (desc.get_ndims() != 2 || desc.get_inner_idxs() != dims{0, 1, 0} || block[2] != 2) return std::nullopt;
  const int64_t depth = block[0] * block[2];
  const bool is_one_below_the_other = strides[0] == depth * block[1] || padded[0] == depth;
  if (!is_one_below_the_other || strides[1] != padded[0] * block[1]) return std::nullopt;
  return PairPanels{static_cast<const uint32_t*>(bytes.const_data_ptr()), block[1], strides[1] / 2};
}

}  // namespace

at::Tensor stored_in_layout(const StoredForms& stored, const std::string& kind, const memory::desc& layout,
                            StoredForms::Make make) {
  const auto is_same = [&](const std::string& other) { return is_blob_of(other, layout); };
  return stored.get(kind, blob_of(layout), is_same, {at::kByte, {static_cast<int64_t>(layout.get_size())}}, make);
}

bool is_stored_in_layout(const StoredForms& stored, const std::string& kind, const memory::desc& layout) {
  return stored.has(kind, [&](const std::string& other) { return is_blob_of(other, layout); });
}

BlockedWeight::BlockedWeight(at::Tensor& plain, memory::desc plain_desc, const memory::desc& blocked_desc,
                             StoredForms stored, std::string kind)
    : plain_sizes_(plain.sizes().vec()),
      plain_strides_(plain.strides().vec()),
      plain_desc_(std::move(plain_desc)),
      desc_(blocked_desc),
      stored_(std::move(stored)),
      kind_(std::move(kind)),
      bytes_(stored_in_layout(stored_, kind_, desc_, [&] { return pack(plain); })),
      panels_(panels_of(desc_, bytes_)),
      pair_panels_(pair_panels_of(desc_, bytes_)) {}

at::Tensor BlockedWeight::pack(at::Tensor& plain) const {
  at::Tensor packed = bytes(desc_.get_size());
  // Asked for the way back before the plain weight is gone.
  dnnl::reorder::primitive_desc(engine(), desc_, engine(), plain_desc_);
  if (desc_.get_ndims() == 2 && plain_desc_.get_strides() == memory::dims{1, plain_desc_.get_dims()[0]}) {
    pack_in_pieces(plain, packed);
  } else {
    reorder(plain_desc_, plain.data_ptr(), desc_, packed.data_ptr());
    if (is_ours_alone(plain)) {
      // malloc's heap would keep the pages.
      const at::Tensor going = std::move(plain);
      auto* const begin = static_cast<char*>(going.data_ptr());
      forget(begin, begin + going.nbytes());
    }
  }
  return packed;
}

void BlockedWeight::pack_in_pieces(at::Tensor& plain, const at::Tensor& packed) const {
  using dims = memory::dims;
  const int64_t depth = desc_.get_dims()[0], columns = desc_.get_dims()[1];
  const dims blocks = desc_.get_inner_blks(), dimensions = desc_.get_inner_idxs();
  int64_t block = 1;
  for (size_t i = 0; i < blocks.size(); ++i) block *= dimensions[i] == 1 ? blocks[i] : 1;
  constexpr int64_t elements_at_once = 4 << 20;
  const int64_t step = std::max<int64_t>(1, elements_at_once / depth / block) * block;
  const bool is_ours = is_ours_alone(plain);
  const int64_t bytes_of_a_column = depth * plain.itemsize();
  char* const source = static_cast<char*>(plain.data_ptr());
  at::Tensor going;
  for (int64_t first = 0; first < columns; first += step) {
    const dims piece{depth, std::min(step, columns - first)};
    char* const begin = source + first * bytes_of_a_column;
    reorder({piece, plain_desc_.get_data_type(), plain_desc_.get_strides()}, begin,
            desc_.submemory_desc(piece, {0, first}), packed.data_ptr());
    if (!is_ours) continue;
    if (first == 0) going = std::move(plain);
    forget(begin, begin + piece[1] * bytes_of_a_column);
  }
}

void BlockedWeight::unpack_into(const at::Tensor& plain) const {
  const auto elements = static_cast<int64_t>(plain_desc_.get_size() / plain.itemsize());
  if (elements == plain.numel()) return reorder(desc_, bytes_.data_ptr(), plain_desc_, plain.data_ptr());
  const at::Tensor whole = at::empty({elements}, plain.options());
  reorder(desc_, bytes_.data_ptr(), plain_desc_, whole.data_ptr());
  plain.view(plain_sizes_).copy_(whole.as_strided(plain_sizes_, plain_strides_));
}

at::Tensor BlockedWeight::in_layout(const memory::desc& wanted) const {
  if (wanted == desc_) return bytes_;
  return *other_layout_.get(wanted, [&] {
    return stored_in_layout(stored_, kind_, wanted, [&] {
      at::Tensor result = bytes(wanted.get_size());
      reorder(desc_, bytes_.data_ptr(), wanted, result.data_ptr());
      return result;
    });
  });
}

}  // namespace ipex::runtime
