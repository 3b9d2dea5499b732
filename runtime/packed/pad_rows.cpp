#include "packed/pad_rows.h"

#include <cstring>

#include "threads/parallel.h"

namespace ipex::runtime {

void pad_rows(const at::Tensor& from, int64_t width, const at::Tensor& to, int64_t padded_width) {
  const auto size = static_cast<int64_t>(from.element_size());
  const auto bytes = static_cast<size_t>(width * size), all = static_cast<size_t>(padded_width * size);
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  constexpr int64_t elements_worth_a_thread = 16384;
  parallel_for(from.numel() / width, elements_worth_a_thread / padded_width + 1, [&](int64_t first, int64_t last) {
    for (auto row = static_cast<size_t>(first); row < static_cast<size_t>(last); ++row) {
      std::memcpy(target + row * all, source + row * bytes, bytes);
      std::memset(target + row * all + bytes, 0, all - bytes);
    }
  });
}

}  // namespace ipex::runtime
