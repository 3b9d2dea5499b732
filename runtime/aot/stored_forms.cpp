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

at::Tensor StoredForms::get(const std::string& kind, Make make) const {
  return get(kind, {}, [](const std::string&) { return true; }, make);
}

at::Tensor StoredForms::get(const std::string& kind, const std::string& layout, StoredFile::SameLayout same,
                            Make make) const {
  if (!file_) return make();
  if (at::Tensor form = file_->find(plain_, kind + of_plain_, same); form.defined()) return form;
  check_plain();
  at::Tensor form = make();
  file_->keep({plain_, kind + of_plain_, layout, replaces_plain_, form});
  return form;
}

bool StoredForms::has(const std::string& kind, StoredFile::SameLayout same) const {
  return file_ && file_->find(plain_, kind + of_plain_, same).defined();
}

void StoredForms::check_plain() const {
  if (file_) file_->check_plain(plain_);
}

}  // namespace ipex::runtime
