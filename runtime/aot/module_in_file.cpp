#include "aot/module_in_file.h"

#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/storage_context.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "storage_records.h"

namespace ipex::runtime {
namespace {

class MemoryReader final : public caffe2::serialize::ReadAdapterInterface {
 public:
  MemoryReader(const char* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  size_t size() const override { return bytes_; }
  size_t read(uint64_t position, void* buffer, size_t count, const char*) const override {
    if (position >= bytes_) return 0;
    const size_t there = std::min<uint64_t>(count, bytes_ - position);
    std::memcpy(buffer, data_ + position, there);
    return there;
  }

 private:
  const char* const data_;
  const uint64_t bytes_;
};

std::shared_ptr<caffe2::serialize::PyTorchStreamReader> reader_of(const char* data, uint64_t bytes) {
  return std::make_shared<caffe2::serialize::PyTorchStreamReader>(std::make_shared<MemoryReader>(data, bytes));
}

}  // namespace

std::vector<StoredTensor> tensors_of_archive(const char* archive, uint64_t bytes, uint64_t offset) {
  const auto reader = reader_of(archive, bytes);
  const std::string_view prefix = storages_in_archive, ending = ".storage";
  std::vector<StoredTensor> tensors;
  for (const std::string& record : reader->getAllRecords()) {
    const std::string_view name = record;
    if (name.substr(0, prefix.size()) != prefix || name.size() < ending.size() ||
        name.substr(name.size() - ending.size()) != ending) {
      continue;
    }
    tensors.push_back({record.substr(prefix.size()),
                       {offset + reader->getRecordOffset(record), reader->getRecordSize(record), /*checksum=*/0}});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.piece.offset < b.piece.offset; });
  return tensors;
}

torch::jit::Module module_in(const std::shared_ptr<StoredFile>& file) {
  const FileLayout& layout = file->layout();
  const auto reader = reader_of(file->data() + layout.archive.offset, layout.archive.bytes);
  const auto storages = std::make_shared<torch::jit::DeserializationStorageContext>();
  std::unordered_set<std::string> names;
  for (const StoredTensor& tensor : layout.tensors) {
    const std::string record = std::string(storages_in_archive) + tensor.name;
    TORCH_CHECK(reader->hasRecord(record) && reader->getRecordSize(record) == tensor.piece.bytes,
                "a table that names other records than the archive");
    if (names.insert(tensor.name).second) storages->addStorage(tensor.name, file->storage_of(tensor));
  }
  check_storage_records(*reader, pickles_in_archive, storages_in_archive);
  torch::jit::Module module = torch::jit::import_ir_module(std::make_shared<torch::jit::CompilationUnit>(), reader,
                                                           storages, at::kCPU, module_in_archive);
  check_tensors(module);
  return module;
}

}  // namespace ipex::runtime
