#include "npy.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace server {
namespace {

constexpr std::pair<const char*, at::ScalarType> DTYPES[] = {
    {"<f4", at::kFloat}, {"<f8", at::kDouble}, {"<f2", at::kHalf}, {"<i8", at::kLong}, {"<i4", at::kInt},
    {"<i2", at::kShort}, {"|i1", at::kChar},   {"|u1", at::kByte}, {"|b1", at::kBool},
};
constexpr char MAGIC[] = "\x93NUMPY";
constexpr size_t MAGIC_SIZE = 6, MAX_DIMENSIONS = 16;

[[noreturn]] void refuse(const std::string& expected, const std::string& got) {
  throw std::invalid_argument("expected " + expected + ", got " + got + ".");
}

// Reads on in a text. Spaces may stand before all that is taken.
class Cursor {
 public:
  explicit Cursor(const std::string& text) : text_(text) {}

  bool is_at(std::string_view expected) {
    at_ = std::min(text_.find_first_not_of(' ', at_), text_.size());
    return text_.compare(at_, expected.size(), expected) == 0;
  }
  bool take(std::string_view expected) {
    const bool found = is_at(expected);
    if (found) at_ += expected.size();
    return found;
  }
  // All up to one of `ends`.
  std::string take_until(const char* ends) {
    is_at("");
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  std::string take_digits() {
    is_at("");
    const size_t begin = at_;
    at_ = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  bool is_at_end() const { return text_.find_first_not_of(" \n", at_) == std::string::npos; }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

struct Header {
  std::string dtype, fortran_order, shape;
};

// The header is the text of a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
Header parse_header(const std::string& text) {
  Header header;
  Cursor at(text);
  bool is_header = at.take("{");
  for (int i = 0; i < 3 && is_header; ++i) {
    std::string* value = at.take("'descr':")           ? &header.dtype
                         : at.take("'fortran_order':") ? &header.fortran_order
                         : at.take("'shape':")         ? &header.shape
                                                       : nullptr;
    is_header = value && value->empty();
    if (!is_header) break;
    *value = at.take_until(value == &header.shape ? ")" : ",}");
    if (value == &header.shape) is_header = at.take(")");
    is_header = is_header && (at.take(",") || i == 2);
  }
  if (!is_header || !at.take("}") || !at.is_at_end()) {
    refuse("a .npy header with 'descr', 'fortran_order' and 'shape'", "'" + text.substr(0, 100) + "'");
  }
  return header;
}

at::ScalarType dtype_of(const std::string& value) {
  for (const auto& [name, dtype] : DTYPES) {
    if (value == std::string("'").append(name).append("'")) return dtype;
  }
  refuse("an array of little-endian floats, integers or bools", "one of " + value);
}

// A Python tuple, without its last parenthesis.
std::vector<int64_t> shape_of(const std::string& value) {
  std::vector<int64_t> shape;
  Cursor at(value);
  bool is_shape = at.take("(");
  while (is_shape && !at.is_at_end()) {
    const std::string digits = at.take_digits();
    is_shape = !digits.empty() && digits.size() <= 18 && (digits[0] != '0' || digits.size() == 1) &&
               shape.size() < MAX_DIMENSIONS;
    if (!is_shape) break;
    shape.push_back(std::stoll(digits));
    // (5) is no tuple.
    is_shape = at.take(",") || (at.is_at_end() && shape.size() > 1);
  }
  if (!is_shape) refuse("a shape", value.substr(0, 100) + ")");
  return shape;
}

// Nothing where the product is beyond what a machine has.
std::optional<size_t> bytes_of(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  bool is_empty = false;
  for (const int64_t size : shape) {
    is_empty |= size == 0;
    // Strides are computed of an empty array too.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : static_cast<size_t>(bytes);
}

at::Tensor decode_one(const std::string& bytes, size_t& at) {
  const size_t left = bytes.size() - at;
  if (left < 12 || bytes.compare(at, MAGIC_SIZE, MAGIC) != 0) {
    refuse("arrays in NumPy's .npy format", std::to_string(left) + " bytes that begin otherwise");
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[at + i])); };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
    refuse(".npy of version 1.0, 2.0 or 3.0", std::to_string(byte(6)) + "." + std::to_string(byte(7)));
  }
  const bool is_first_version = byte(6) == 1;
  const size_t head = is_first_version ? 10 : 12;
  const size_t length =
      is_first_version ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > left - head) refuse("a .npy header of " + std::to_string(length) + " bytes", "the end of the body");
  const Header header = parse_header(bytes.substr(at + head, length));
  if (header.fortran_order != "False") refuse("an array in C order", "one in Fortran's");
  const at::ScalarType dtype = dtype_of(header.dtype);
  const std::vector<int64_t> shape = shape_of(header.shape);
  const std::optional<size_t> size = bytes_of(shape, dtype);
  const size_t there = left - head - length;
  if (!size || *size > there) {
    refuse(size ? std::to_string(*size) + " bytes of numbers" : "fewer numbers", std::to_string(there));
  }
  at::Tensor tensor = at::empty(shape, dtype);
  if (*size > 0) std::memcpy(tensor.mutable_data_ptr(), bytes.data() + at + head + length, *size);
  at += head + length + *size;
  return tensor;
}

void encode_one(const at::Tensor& given, std::string& bytes) {
  const bool has_dtype = given.scalar_type() != at::kBFloat16;
  const at::Tensor tensor = (has_dtype ? given : given.to(at::kFloat)).contiguous();
  const char* name = nullptr;
  for (const auto& [candidate, dtype] : DTYPES) {
    if (dtype == tensor.scalar_type()) name = candidate;
  }
  if (!name) refuse("a model that returns real numbers", std::string("one of ") + c10::toString(tensor.scalar_type()));
  std::string header = std::string("{'descr': '") + name + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : tensor.sizes()) header += std::to_string(size) + ", ";
  header += "), }";
  // Numbers begin at a multiple of 64 bytes.
  header.resize((MAGIC_SIZE + 4 + header.size() + 1 + 63) / 64 * 64 - MAGIC_SIZE - 4 - 1, ' ');
  header += '\n';
  bytes += MAGIC;
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  bytes += header;
  bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

}  // namespace

std::vector<at::Tensor> decode_npy(const std::string& bytes) {
  std::vector<at::Tensor> tensors;
  size_t at = 0;
  do {
    tensors.push_back(decode_one(bytes, at));
  } while (at < bytes.size());
  return tensors;
}

std::string encode_npy(const std::vector<at::Tensor>& tensors) {
  std::string bytes;
  for (const at::Tensor& tensor : tensors) encode_one(tensor, bytes);
  return bytes;
}

}  // namespace server
