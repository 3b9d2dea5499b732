// What stands where in a file with packed weights: docs/reference/ahead_of_time_files.md. Writing the tables, and reading
// them from bytes that may say anything.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ipex::runtime {

constexpr std::string_view magic_of_files("ipex-AOT", 8);
constexpr uint64_t file_page = 4096;

// For what the weights are packed.
struct Target {
  std::string ipex, onednn;  // versions: others pack otherwise
  std::string torch;         // for information
  std::string level;         // as ipex/isa.h names it
  std::string onednn_isa;
};

// A piece of the file with a checksum of its own.
struct Piece {
  uint64_t offset = 0, bytes = 0, checksum = 0;
  uint64_t end() const { return offset + bytes; }
};

// A storage of the archive.
struct StoredTensor {
  std::string name;  // the key by which the archive's pickles refer to it
  Piece piece;
};

// A packed form of a plain weight.
struct StoredForm {
  uint64_t plain;            // where in the file the plain weight begins
  std::string kind, layout;  // which form it is
  bool replaces_plain;       // whether nobody reads the plain weight once this form is there
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;  // dense
  Piece piece;
};

struct FileLayout {
  Target target;
  Piece archive, packed;  // their checksums are those of what lies in no tensor and in no form
  std::vector<StoredTensor> tensors;
  std::vector<StoredForm> forms;
};

// The checksum of a section without the pieces in it, which lie in order.
uint64_t checksum_around(const char* file, const Piece& section, const std::vector<Piece>& pieces);

// Where the tables begin in a file whose data ends here.
constexpr uint64_t page_end(uint64_t offset) { return (offset + file_page - 1) / file_page * file_page; }

// The first page of a file, and the tables, which begin at page_end(packed.end()) and end the file.
struct WrittenLayout {
  std::string header, tables;
};
WrittenLayout written(const FileLayout& layout);

// Reads header and tables, and checks that they are whole, that every piece lies where it may, and that what lies between
// the sections is zero. Throws where one is not, with `path` for the message. The checksums of pieces are not compared.
FileLayout read_layout(const std::string& path, std::string_view file);

// Throws that a file is damaged.
[[noreturn]] void throw_damaged(const std::string& path, const std::string& expected, const std::string& got);

}  // namespace ipex::runtime
