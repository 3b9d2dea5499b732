// The packed forms of one weight. Whoever packs a weight asks here first: a file that was saved ahead of time may have the
// form. Which weight it is, the address of the plain one tells: it lies in the mapped file.
#pragma once

#include <memory>
#include <string>

#include "aot/stored_file.h"

namespace ipex::runtime {

class StoredForms {
 public:
  enum class Plain { dropped, kept };  // once the weight is packed

  // Of a weight that lies in no file: every form is made.
  StoredForms() = default;
  static StoredForms of(const at::Tensor& plain, Plain plain_is);

  // The form `kind`, which names all that it depends on beside the plain weight and ipex's version. `make` gives it, dense,
  // where it is in no file. The first form that is asked for is what the weight is packed to.
  using Make = c10::function_ref<at::Tensor()>;
  at::Tensor get(const std::string& kind, const FormShape& shape, Make make) const;
  // The same for a form that is one of several layouts.
  at::Tensor get(const std::string& kind, const std::string& layout, StoredFile::SameLayout same,
                 const FormShape& shape, Make make) const;
  bool has(const std::string& kind, StoredFile::SameLayout same) const;

  // Throws where the plain weight is damaged. To be called before it is read outside of `make`.
  void check_plain() const;

  // What became of the file's form, such as "in the file". Empty for a weight that lies in no file.
  std::string describe() const { return file_ ? file_->describe(plain_) : std::string(); }

 private:
  std::shared_ptr<StoredFile> file_;
  uint64_t plain_ = 0;
  std::string of_plain_;  // its dtype, sizes and strides
  bool replaces_plain_ = false;
};

}  // namespace ipex::runtime
