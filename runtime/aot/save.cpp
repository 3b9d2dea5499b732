// How a file is written:
//
//   1. a page for the header, and the module's archive, with the plain weights
//   2. the module is loaded from that as aot_load does, and packed and run: contexts find their plain weight in the file,
//      and hand in each form that they make of it
//   3. the forms, the tables, the header; then the file gets its name
//
// So it holds what contexts will ask for when it is loaded, whatever kind of op they belong to.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <caffe2/serialize/inline_container.h>
#include <ipex/aot.h>
#include <torch/csrc/jit/serialization/export.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "aot/checksum.h"
#include "aot/module_in_file.h"
#include "aot/target.h"
#include "isa/isa.h"

namespace ipex {
namespace {

using runtime::FileLayout;
using runtime::Piece;
using runtime::StoredFile;

void write_archive(torch::jit::Module module, const std::function<size_t(const void*, size_t)>& write) {
  caffe2::serialize::PyTorchStreamWriter writer(write);
  torch::jit::ScriptModuleSerializer serializer(writer);
  serializer.serialize_unified_format(module, /*script_module_id=*/0);
  serializer.writeFiles(runtime::code_in_archive);
  writer.writeEndOfFile();
}

// A file that is gone unless it was given its name.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path),
        temporary_{path + "." + std::to_string(::getpid()) + "." + std::to_string(next_++) + ".part"},
        stream_(temporary_.name, std::ios::binary) {
    check();
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& temporary() const { return temporary_.name; }
  uint64_t size() const { return size_; }
  // An error is kept for flush() and finish(): torch's writer can't do with one.
  void write(const void* data, size_t bytes) {
    stream_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    size_ += bytes;
  }
  void fill_to(uint64_t offset) { write(std::string(offset - size_, '\0').data(), offset - size_); }
  void flush() {
    stream_.flush();
    check();
  }
  // Writes the first bytes, and gives the file its name.
  void finish(const std::string& header) {
    stream_.seekp(0);
    stream_.write(header.data(), static_cast<std::streamsize>(header.size()));
    stream_.close();
    check();
    std::error_code error;
    std::filesystem::rename(temporary_.name, path_, error);
    TORCH_CHECK(!error, "ipex::aot_save: expected to write '", path_, "', got an error: ", error.message(), ".");
    temporary_.name.clear();
  }

 private:
  void check() const {
    TORCH_CHECK(stream_.good(), "ipex::aot_save: expected to write '", path_,
                "', got an error. Is there such a folder, and room on the disk?");
  }

  // Goes too where the constructor throws.
  struct Temporary {
    std::string name;
    ~Temporary() {
      std::error_code ignored;
      if (!name.empty()) std::filesystem::remove(name, ignored);
    }
  };

  inline static std::atomic<int> next_ = 0;
  const std::string path_;
  Temporary temporary_;
  std::ofstream stream_;
  uint64_t size_ = 0;
};

void check_isa(const std::optional<isa::Level>& wanted) {
  const isa::Level level = isa::level_in_use();
  TORCH_CHECK(!wanted || *wanted == level, "ipex::aot_save: expected the instructions that this process uses, ",
              isa::name(level), ", got ", isa::name(*wanted),
              ". Call ipex::isa::limit at the start of the program, or set "
              "ATEN_CPU_CAPABILITY=",
              isa::name(*wanted), " for it.");
}

// Makes what the file shall hold.
void pack(torch::jit::Module module, const AotSaveOptions& options) {
  const at::NoGradGuard no_gradients;
  for (const std::vector<c10::IValue>& inputs : options.example_inputs) module.forward(inputs);
  // Whatever no input has led to is packed when it is saved.
  write_archive(module, [](const void*, size_t bytes) { return bytes; });
}

void write_forms(NewFile& file, StoredFile& stored, FileLayout& layout) {
  constexpr uint64_t line = 64;
  file.fill_to(runtime::page_end(file.size()));
  layout.packed.offset = file.size();
  for (const StoredFile::Form& form : stored.kept()) {
    TORCH_INTERNAL_ASSERT(form.tensor.is_contiguous(), "ipex: a form of a weight is not dense: ", form.kind);
    const auto bytes = static_cast<uint64_t>(form.tensor.nbytes());
    if (bytes == 0) continue;
    const uint64_t alignment = bytes < runtime::file_page ? line : runtime::file_page;
    file.fill_to((file.size() + alignment - 1) / alignment * alignment);
    const void* data = form.tensor.const_data_ptr();
    const Piece piece{file.size(), bytes, runtime::checksum(data, bytes)};
    file.write(data, bytes);
    layout.forms.push_back({form.plain, form.kind, form.layout, form.replaces_plain, form.tensor.scalar_type(),
                            form.tensor.sizes().vec(), piece});
  }
  layout.packed.bytes = file.size() - layout.packed.offset;
}

// Of a section in which there is nothing but pieces and zeros.
uint64_t checksum_of_gaps(const Piece& section, const std::vector<runtime::StoredForm>& forms) {
  std::vector<uint64_t> sums;
  uint64_t begin = section.offset;
  const auto add = [&](uint64_t end) {
    const std::string zeros(end - begin, '\0');
    sums.push_back(runtime::checksum(zeros.data(), zeros.size()));
  };
  for (const runtime::StoredForm& form : forms) {
    add(form.piece.offset);
    begin = form.piece.end();
  }
  add(section.end());
  return runtime::checksum(sums.data(), sums.size() * sizeof(uint64_t));
}

}  // namespace

void aot_save(const torch::jit::Module& module, const std::string& path, const AotSaveOptions& options) {
  check_isa(options.isa);
  NewFile file(path);
  file.fill_to(runtime::file_page);
  write_archive(module, [&](const void* data, size_t bytes) {
    file.write(data, bytes);
    return bytes;
  });
  file.flush();

  FileLayout layout;
  layout.archive = {runtime::file_page, file.size() - runtime::file_page, 0};
  {
    const runtime::MappedFile written("ipex::aot_save", file.temporary());
    const char* const archive = written.data() + layout.archive.offset;
    layout.tensors = runtime::tensors_of_archive(archive, layout.archive.bytes, layout.archive.offset);
    std::vector<Piece> pieces;
    for (runtime::StoredTensor& tensor : layout.tensors) {
      Piece& piece = tensor.piece;
      piece.checksum = runtime::checksum(written.data() + piece.offset, piece.bytes);
      pieces.push_back(piece);
    }
    layout.archive.checksum = runtime::checksum_around(written.data(), layout.archive, pieces);
  }
  const auto stored = StoredFile::being_written(file.temporary(), layout.archive, layout.tensors);
  pack(runtime::module_in(stored), options);
  layout.target = runtime::this_process();
  write_forms(file, *stored, layout);
  layout.packed.checksum = checksum_of_gaps(layout.packed, layout.forms);
  const runtime::WrittenLayout tables = runtime::written(layout);
  file.fill_to(runtime::page_end(file.size()));
  file.write(tables.tables.data(), tables.tables.size());
  file.finish(tables.header);
}

}  // namespace ipex
