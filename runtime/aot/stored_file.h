// A file with packed weights, mapped: the plain weights in it, and their packed forms. Or one that is being written, for
// which the forms are collected as contexts make them.
//
// No byte is used that was not compared with its checksum.
#pragma once

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aot/file_layout.h"
#include "aot/mapped_file.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

// What a form must be for those that read it.
struct FormShape {
  at::ScalarType dtype;
  at::DimVector sizes;
};

class StoredFile : public std::enable_shared_from_this<StoredFile> {
 public:
  // Which form of a weight, and how it is laid out.
  struct Form {
    uint64_t plain;
    std::string kind, layout;
    bool replaces_plain;
    at::Tensor tensor;
  };
  using SameLayout = c10::function_ref<bool(const std::string& layout)>;
  enum class Check { at_load, at_first_use };

  // A file that aot_save wrote. Throws where it is damaged. `check` is for packed weights; the rest is checked now, but for
  // plain weights that packed ones replace.
  static std::shared_ptr<StoredFile> open(const std::string& path, Check check);
  // One that has an archive with these tensors so far.
  static std::shared_ptr<StoredFile> being_written(const std::string& path, const Piece& archive,
                                                   std::vector<StoredTensor> tensors);
  // The file in which the address lies. Null where that is none.
  static std::shared_ptr<StoredFile> holding(const void* address);

  StoredFile(const char* where, const std::string& path);
  ~StoredFile();
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;

  const FileLayout& layout() const { return layout_; }
  const char* data() const { return file_.data(); }
  uint64_t offset_of(const void* address) const { return static_cast<const char*>(address) - file_.data(); }
  // Lives as long as the storage.
  c10::Storage storage_of(const StoredTensor& tensor);

  // The form as it lies in the file. Undefined where there is none. Throws where it is none of this shape, or damaged.
  at::Tensor find(uint64_t plain, const std::string& kind, SameLayout same, const FormShape& shape);
  bool has(uint64_t plain, const std::string& kind, SameLayout same) const;
  // Keeps a form that was made, where the file is being written.
  void keep(Form form);
  // All that was kept, in the order of the plain weights.
  std::vector<Form> kept() const;

  // Throws where a plain weight is damaged. To be called before one is read that a packed form could replace.
  void check_plain(uint64_t plain);
  // For the description of a context: where its packed weight comes from.
  std::string describe(uint64_t plain) const;

 private:
  void register_here();
  at::Tensor find_kept(uint64_t plain, const std::string& kind, SameLayout same) const;
  const StoredForm* find_stored(uint64_t plain, const std::string& kind, SameLayout same) const;
  void check(const Piece& piece, const char* what, std::atomic<bool>& is_checked) const;

  const std::string path_;
  MappedFile file_;
  FileLayout layout_;
  std::string reason_, difference_;
  bool is_written_ = false;
  std::unique_ptr<std::atomic<bool>[]> tensor_is_checked_, form_is_checked_;

  mutable ForkSafeMutex mutex_;
  std::vector<Form> kept_;
  std::map<uint64_t, bool> is_found_;  // whether the first form that was asked for is there, by plain weight
};

}  // namespace ipex::runtime
