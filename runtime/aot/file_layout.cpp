#include "aot/file_layout.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>

#include "aot/checksum.h"

namespace ipex::runtime {
namespace {

constexpr std::string_view magic = magic_of_files;
constexpr uint64_t format_version = 1;

// The header: the magic, then these numbers.
struct Header {
  uint64_t version, file_bytes;
  Piece archive, packed, target, tensors, forms;
  uint64_t checksum;  // of what stands before it
};
static_assert(sizeof(Header) == 18 * sizeof(uint64_t));
constexpr size_t header_bytes = magic.size() + sizeof(Header);

class Writer {
 public:
  void number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void text(const std::string& value) {
    number(value.size());
    bytes_ += value;
  }
  void piece(const Piece& piece) {
    number(piece.offset);
    number(piece.bytes);
    number(piece.checksum);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  Reader(const std::string& path, std::string_view bytes) : path_(path), rest_(bytes) {}

  uint64_t number() {
    uint64_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string text() { return std::string(take(number())); }
  Piece piece() {
    const uint64_t offset = number(), bytes = number();
    return {offset, bytes, number()};
  }
  // How many entries follow, each of at least this many bytes.
  uint64_t count(uint64_t least_bytes) {
    const uint64_t count = number();
    if (count > rest_.size() / least_bytes) refuse("a table of at most " + std::to_string(rest_.size()) + " bytes");
    return count;
  }
  void end() const {
    if (!rest_.empty()) refuse("the end of a table");
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    throw_damaged(path_, expected, std::to_string(rest_.size()) + " bytes");
  }

 private:
  std::string_view take(uint64_t bytes) {
    if (bytes > rest_.size()) refuse(std::to_string(bytes) + " more bytes of a table");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  const std::string& path_;
  std::string_view rest_;
};

std::string target_table(const Target& target) {
  Writer writer;
  for (const std::string* text : {&target.ipex, &target.onednn, &target.torch, &target.level, &target.onednn_isa}) {
    writer.text(*text);
  }
  return writer.bytes();
}

Target read_target(Reader reader) {
  Target target;
  for (std::string* text : {&target.ipex, &target.onednn, &target.torch, &target.level, &target.onednn_isa}) {
    *text = reader.text();
    const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
    if (!std::all_of(text->begin(), text->end(), is_printable)) reader.refuse("a printable version");
  }
  reader.end();
  return target;
}

std::string tensor_table(const std::vector<StoredTensor>& tensors) {
  Writer writer;
  writer.number(tensors.size());
  for (const StoredTensor& tensor : tensors) {
    writer.text(tensor.name);
    writer.piece(tensor.piece);
  }
  return writer.bytes();
}

std::vector<StoredTensor> read_tensors(Reader reader) {
  std::vector<StoredTensor> tensors(reader.count(/*least_bytes=*/32));
  for (StoredTensor& tensor : tensors) tensor = {reader.text(), reader.piece()};
  reader.end();
  return tensors;
}

std::string form_table(const std::vector<StoredForm>& forms) {
  Writer writer;
  writer.number(forms.size());
  for (const StoredForm& form : forms) {
    writer.number(form.plain);
    writer.text(form.kind);
    writer.text(form.layout);
    writer.number(form.replaces_plain);
    writer.number(static_cast<uint64_t>(form.dtype));
    writer.number(form.sizes.size());
    for (const int64_t size : form.sizes) writer.number(size);
    writer.piece(form.piece);
  }
  return writer.bytes();
}

StoredForm read_form(Reader& reader) {
  StoredForm form;
  form.plain = reader.number();
  form.kind = reader.text();
  form.layout = reader.text();
  form.replaces_plain = reader.number() != 0;
  const uint64_t dtype = reader.number();
  if (dtype >= static_cast<uint64_t>(c10::ScalarType::NumOptions)) reader.refuse("the number of a dtype");
  form.dtype = static_cast<c10::ScalarType>(dtype);
  const bool is_known = c10::isFloatingType(form.dtype) || c10::isIntegralType(form.dtype, /*includeBool=*/false);
  if (!is_known) reader.refuse("a dtype of packed weights");
  form.sizes.resize(reader.count(sizeof(uint64_t)));
  const uint64_t itemsize = c10::elementSize(form.dtype);
  uint64_t bytes = itemsize;
  for (int64_t& size : form.sizes) {
    const uint64_t value = reader.number();
    if (value == 0 || value > (uint64_t{1} << 48) || bytes > (uint64_t{1} << 48) / value) reader.refuse("a size");
    bytes *= value;
    size = static_cast<int64_t>(value);
  }
  form.piece = reader.piece();
  if (form.piece.bytes != bytes) reader.refuse("a packed weight of " + std::to_string(bytes) + " bytes");
  return form;
}

std::vector<StoredForm> read_forms(Reader reader) {
  std::vector<StoredForm> forms(reader.count(/*least_bytes=*/72));
  for (StoredForm& form : forms) form = read_form(reader);
  reader.end();
  return forms;
}

bool lies_in(const Piece& piece, const Piece& whole) {
  return piece.offset >= whole.offset && piece.offset <= whole.end() && piece.bytes <= whole.end() - piece.offset;
}

std::string text_of(const Piece& piece) { return c10::str(piece.bytes, " bytes at ", piece.offset); }

// Pieces of a section: in order, apart, at multiples of `alignment`.
template <typename Entry>
void check_order(const std::string& path, const char* what, const std::vector<Entry>& entries, const Piece& section,
                 uint64_t alignment) {
  uint64_t end = section.offset;
  for (const Entry& entry : entries) {
    const Piece& piece = entry.piece;
    if (!lies_in(piece, section) || piece.offset < end || piece.offset % alignment != 0) {
      throw_damaged(path, c10::str(what, " between ", end, " and ", section.end()), text_of(piece));
    }
    end = piece.end();
  }
}

void check_zero(const std::string& path, std::string_view file, uint64_t begin, uint64_t end) {
  const auto is_zero = [](char byte) { return byte == 0; };
  if (!std::all_of(file.begin() + begin, file.begin() + end, is_zero)) {
    throw_damaged(path, c10::str("zeros from ", begin, " to ", end), "other bytes");
  }
}

}  // namespace

void throw_damaged(const std::string& path, const std::string& expected, const std::string& got) {
  TORCH_CHECK(false, "ipex::aot_load: expected ", expected, " in '", path, "', got ", got,
              ". The file is damaged: save the model again.");
}

uint64_t checksum_around(const char* file, const Piece& section, const std::vector<Piece>& pieces) {
  std::vector<uint64_t> sums;
  uint64_t begin = section.offset;
  for (const Piece& piece : pieces) {
    sums.push_back(checksum(file + begin, piece.offset - begin));
    begin = piece.end();
  }
  sums.push_back(checksum(file + begin, section.end() - begin));
  return checksum(sums.data(), sums.size() * sizeof(uint64_t));
}

WrittenLayout written(const FileLayout& layout) {
  WrittenLayout result;
  uint64_t end = page_end(layout.packed.end());
  const auto add = [&](const std::string& table) {
    const Piece piece{end, table.size(), checksum(table.data(), table.size())};
    result.tables += table;
    end = piece.end();
    return piece;
  };
  Header header{.version = format_version,
                .file_bytes = 0,
                .archive = layout.archive,
                .packed = layout.packed,
                .target = add(target_table(layout.target)),
                .tensors = add(tensor_table(layout.tensors)),
                .forms = add(form_table(layout.forms)),
                .checksum = 0};
  header.file_bytes = end;
  result.header = std::string(magic) + std::string(reinterpret_cast<const char*>(&header), sizeof(header));
  const uint64_t sum = checksum(result.header.data(), header_bytes - sizeof(uint64_t));
  std::memcpy(result.header.data() + header_bytes - sizeof(uint64_t), &sum, sizeof(sum));
  result.header.resize(file_page);
  return result;
}

FileLayout read_layout(const std::string& path, std::string_view file) {
  TORCH_CHECK(file.substr(0, magic.size()) == magic, "ipex::aot_load: expected a file that ipex::aot_save wrote at '",
              path, "', got another one. Load a portable file with ipex::load.");
  if (file.size() < file_page) throw_damaged(path, "a header", c10::str(file.size(), " bytes"));
  Header header;
  std::memcpy(&header, file.data() + magic.size(), sizeof(header));
  TORCH_CHECK(header.version == format_version, "ipex::aot_load: expected a file of version ", format_version, " at '",
              path, "', got ", header.version, ". Save the model again with this version of ipex.");
  if (checksum(file.data(), header_bytes - sizeof(uint64_t)) != header.checksum) {
    throw_damaged(path, "a header with its checksum", "another one");
  }
  if (header.file_bytes != file.size()) {
    throw_damaged(path, c10::str(header.file_bytes, " bytes"), c10::str(file.size()));
  }
  check_zero(path, file, header_bytes, file_page);

  // In this order, one behind the other. Data begins at whole pages.
  uint64_t end = file_page;
  for (const Piece* section : {&header.archive, &header.packed, &header.target, &header.tensors, &header.forms}) {
    const bool is_data = section == &header.archive || section == &header.packed || section == &header.target;
    const uint64_t begin = is_data ? page_end(end) : end;
    if (section->offset != begin || begin > file.size() || section->bytes > file.size() - begin) {
      throw_damaged(path, c10::str("a section at ", begin), text_of(*section));
    }
    check_zero(path, file, end, begin);
    end = section->end();
  }
  if (end != file.size()) throw_damaged(path, c10::str("the end at ", file.size()), c10::str(end));

  const auto table = [&](const Piece& piece) {
    const std::string_view bytes = file.substr(piece.offset, piece.bytes);
    if (checksum(bytes.data(), bytes.size()) != piece.checksum) {
      throw_damaged(path, "a table with its checksum", c10::str("another one at ", piece.offset));
    }
    return Reader(path, bytes);
  };
  FileLayout layout{read_target(table(header.target)), header.archive, header.packed,
                    read_tensors(table(header.tensors)), read_forms(table(header.forms))};
  check_order(path, "a tensor", layout.tensors, layout.archive, /*alignment=*/1);
  check_order(path, "a packed weight", layout.forms, layout.packed, /*alignment=*/64);
  auto tensor = layout.tensors.begin();
  for (const StoredForm& form : layout.forms) {  // in the order of the plain weights
    while (tensor != layout.tensors.end() && tensor->piece.end() <= form.plain) ++tensor;
    if (tensor == layout.tensors.end() || form.plain < tensor->piece.offset) {
      throw_damaged(path, "a packed weight of a tensor in the file", c10::str("one of ", form.plain));
    }
  }
  return layout;
}

}  // namespace ipex::runtime
