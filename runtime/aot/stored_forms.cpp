#include "aot/stored_forms.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace ipex::runtime {

StoredForms StoredForms::of(const at::Tensor& plain, Plain plain_is) {
  StoredForms forms;
  forms.file_ = StoredFile::holding(plain.const_data_ptr());
  if (!forms.file_) return forms;
  forms.plain_ = forms.file_->offset_of(plain.const_data_ptr());
  forms.of_plain_ = c10::str(" of ", plain.scalar_type(), plain.sizes(), plain.strides());
  forms.replaces_plain_ = plain_is == Plain::dropped;
  return forms;
}

at::Tensor StoredForms::get(const std::string& kind, const FormShape& shape, Make make) const {
  return get(kind, {}, [](const std::string&) { return true; }, shape, make);
}

at::Tensor StoredForms::get(const std::string& kind, const std::string& layout, StoredFile::SameLayout same,
                            const FormShape& shape, Make make) const {
  if (!file_) return make();
  if (at::Tensor form = file_->find(plain_, kind + of_plain_, same, shape); form.defined()) return form;
  check_plain();
  at::Tensor form = make();
  TORCH_INTERNAL_ASSERT(form.scalar_type() == shape.dtype && form.sizes() == shape.sizes && form.is_contiguous(),
                        "ipex: a form of a weight is not what was told: ", kind);
  file_->keep({plain_, kind + of_plain_, layout, replaces_plain_, form});
  return form;
}

bool StoredForms::has(const std::string& kind, StoredFile::SameLayout same) const {
  return file_ && file_->has(plain_, kind + of_plain_, same);
}

void StoredForms::check_plain() const {
  if (file_) file_->check_plain(plain_);
}

}  // namespace ipex::runtime
