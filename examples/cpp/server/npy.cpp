#include "npy.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <optional>
#include <stdexcept>
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

// What stands after 'key': in the header, which is the text of a Python dict.
std::string value_of(const std::string& header, const std::string& key, const char* ends) {
  const size_t found = header.find("'" + key + "':");
  const size_t begin = found == std::string::npos ? found : header.find_first_not_of(' ', found + key.size() + 3);
  const size_t end = begin == std::string::npos ? begin : header.find_first_of(ends, begin);
  if (end == std::string::npos) refuse("a .npy header with '" + key + "'", "'" + header.substr(0, 100) + "'");
  return header.substr(begin, end - begin);
}

at::ScalarType dtype_of(const std::string& header) {
  const std::string value = value_of(header, "descr", ",}");
  for (const auto& [name, dtype] : DTYPES) {
    if (value == std::string("'").append(name).append("'")) return dtype;
  }
  refuse("an array of little-endian floats, integers or bools", "one of " + value);
}

std::vector<int64_t> shape_of(const std::string& header) {
  const std::string value = value_of(header, "shape", ")");
  if (value.find_first_not_of("(0123456789, ") != std::string::npos) refuse("a shape", value.substr(0, 100) + ")");
  std::vector<int64_t> shape;
  for (size_t at = value.find_first_of("0123456789"); at != std::string::npos;) {
    size_t end = value.find_first_not_of("0123456789", at);
    if (end == std::string::npos) end = value.size();
    if (end - at > 18 || shape.size() == MAX_DIMENSIONS) refuse("a shape", value.substr(0, 100) + ")");
    shape.push_back(std::stoll(value.substr(at, end - at)));
    at = value.find_first_of("0123456789", end);
  }
  return shape;
}

// Nothing where the product is beyond what a machine has.
std::optional<size_t> bytes_of(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  size_t bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

at::Tensor decode_one(const std::string& bytes, size_t& at) {
  const size_t left = bytes.size() - at;
  if (left < 12 || bytes.compare(at, MAGIC_SIZE, MAGIC) != 0) {
    refuse("arrays in NumPy's .npy format", std::to_string(left) + " bytes that begin otherwise");
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[at + i])); };
  const bool is_first_version = byte(6) == 1;
  const size_t head = is_first_version ? 10 : 12;
  const size_t length =
      is_first_version ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > left - head) refuse("a .npy header of " + std::to_string(length) + " bytes", "the end of the body");
  const std::string header = bytes.substr(at + head, length);
  if (value_of(header, "fortran_order", ",}") != "False") refuse("an array in C order", "one in Fortran's");
  const at::ScalarType dtype = dtype_of(header);
  const std::vector<int64_t> shape = shape_of(header);
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
