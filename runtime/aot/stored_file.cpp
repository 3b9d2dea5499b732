#include "aot/stored_file.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "aot/checksum.h"
#include "aot/target.h"

namespace ipex::runtime {
namespace {

// All files, by where they begin in memory. It holds none of them.
struct Files {
  ForkSafeMutex mutex;
  std::map<const char*, std::weak_ptr<StoredFile>> files;

  // Never destroyed: a weight may outlive everything else.
  static Files& instance() {
    static auto* const files = new Files;
    return *files;
  }
};

template <typename Entry>
std::vector<Piece> pieces_of(const std::vector<Entry>& entries) {
  std::vector<Piece> pieces;
  for (const Entry& entry : entries) pieces.push_back(entry.piece);
  return pieces;
}

// The tensor in which a plain weight lies.
size_t tensor_of(const FileLayout& layout, uint64_t plain) {
  const auto begins_after = [](uint64_t offset, const StoredTensor& tensor) { return offset < tensor.piece.offset; };
  const auto after = std::upper_bound(layout.tensors.begin(), layout.tensors.end(), plain, begins_after);
  return after - layout.tensors.begin() - 1;
}

// What keeps the file mapped while a tensor of it lives.
void release(void* file) { delete static_cast<std::shared_ptr<StoredFile>*>(file); }

}  // namespace

StoredFile::StoredFile(const char* where, const std::string& path) : path_(path), file_(where, path) {}

StoredFile::~StoredFile() {
  Files& all = Files::instance();
  const std::lock_guard lock(all.mutex);
  all.files.erase(file_.data());
}

void StoredFile::register_here() {
  Files& all = Files::instance();
  const std::lock_guard lock(all.mutex);
  all.files[file_.data()] = weak_from_this();
}

std::shared_ptr<StoredFile> StoredFile::holding(const void* address) {
  Files& all = Files::instance();
  std::shared_ptr<StoredFile> file;
  const std::lock_guard lock(all.mutex);
  const auto after = all.files.upper_bound(static_cast<const char*>(address));
  if (after != all.files.begin()) file = std::prev(after)->second.lock();
  return file && file->file_.holds(address) ? file : nullptr;
}

std::shared_ptr<StoredFile> StoredFile::open(const std::string& path, Check check) {
  auto file = std::make_shared<StoredFile>("ipex::aot_load", path);
  FileLayout& layout = file->layout_;
  layout = read_layout(path, file->file_.bytes());
  file->reason_ = reason_against(layout.target);
  file->difference_ = difference_of_levels(layout.target);
  file->tensor_is_checked_ = std::make_unique<std::atomic<bool>[]>(layout.tensors.size());
  file->form_is_checked_ = std::make_unique<std::atomic<bool>[]>(layout.forms.size());

  if (checksum_around(file->data(), layout.archive, pieces_of(layout.tensors)) != layout.archive.checksum) {
    throw_damaged(path, "a module with its checksum", "another one");
  }
  if (checksum_around(file->data(), layout.packed, pieces_of(layout.forms)) != layout.packed.checksum) {
    throw_damaged(path, "gaps between packed weights with their checksum", "another one");
  }
  const bool uses_forms = file->reason_.empty();
  std::unordered_set<size_t> replaced;
  for (size_t i = 0; i < layout.forms.size() && uses_forms; ++i) {
    const StoredForm& form = layout.forms[i];
    if (form.replaces_plain) replaced.insert(tensor_of(layout, form.plain));
    if (check == Check::at_load) file->check(form.piece, "a packed weight", file->form_is_checked_[i]);
  }
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    if (!replaced.count(i)) file->check(layout.tensors[i].piece, "a tensor", file->tensor_is_checked_[i]);
  }
  // Someone may write to a buffer of the module, and then has the page for himself.
  file->file_.allow_writes(layout.archive.offset, page_end(layout.archive.end()));
  file->register_here();
  return file;
}

std::shared_ptr<StoredFile> StoredFile::being_written(const std::string& path, const Piece& archive,
                                                      std::vector<StoredTensor> tensors) {
  auto file = std::make_shared<StoredFile>("ipex::aot_save", path);
  file->is_written_ = true;
  file->layout_.archive = archive;
  file->layout_.tensors = std::move(tensors);
  file->file_.allow_writes(archive.offset, archive.end());
  file->register_here();
  return file;
}

c10::Storage StoredFile::storage_of(const StoredTensor& tensor) {
  const Piece& piece = tensor.piece;
  auto* const data = const_cast<char*>(file_.data() + piece.offset);
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(piece.bytes),
                      c10::DataPtr(data, new std::shared_ptr<StoredFile>(shared_from_this()), &release, at::kCPU),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

bool StoredFile::has(uint64_t plain, const std::string& kind, SameLayout same) const {
  return is_written_ ? find_kept(plain, kind, same).defined() : find_stored(plain, kind, same) != nullptr;
}

at::Tensor StoredFile::find(uint64_t plain, const std::string& kind, SameLayout same, const FormShape& shape) {
  if (is_written_) return find_kept(plain, kind, same);
  const StoredForm* const form = find_stored(plain, kind, same);
  {
    const std::lock_guard lock(mutex_);
    is_found_.emplace(plain, form != nullptr);
  }
  if (!form) return {};
  if (form->dtype != shape.dtype || at::IntArrayRef(form->sizes) != at::IntArrayRef(shape.sizes)) {
    throw_damaged(path_, c10::str("a packed weight of ", shape.dtype, at::IntArrayRef(shape.sizes)),
                  c10::str("one of ", form->dtype, at::IntArrayRef(form->sizes)));
  }
  check(form->piece, "a packed weight", form_is_checked_[form - layout_.forms.data()]);
  auto* const data = const_cast<char*>(file_.data() + form->piece.offset);
  return at::from_blob(data, form->sizes, [owner = shared_from_this()](void*) {}, at::TensorOptions(form->dtype));
}

at::Tensor StoredFile::find_kept(uint64_t plain, const std::string& kind, SameLayout same) const {
  const std::lock_guard lock(mutex_);
  for (const Form& form : kept_) {
    if (form.plain == plain && form.kind == kind && same(form.layout)) return form.tensor;
  }
  return {};
}

const StoredForm* StoredFile::find_stored(uint64_t plain, const std::string& kind, SameLayout same) const {
  if (!reason_.empty()) return nullptr;
  const auto is_before = [](const StoredForm& form, uint64_t offset) { return form.plain < offset; };
  auto form = std::lower_bound(layout_.forms.begin(), layout_.forms.end(), plain, is_before);
  for (; form != layout_.forms.end() && form->plain == plain; ++form) {
    if (form->kind == kind && same(form->layout)) return &*form;
  }
  return nullptr;
}

void StoredFile::keep(Form form) {
  if (!is_written_) return;
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(form));
}

std::vector<StoredFile::Form> StoredFile::kept() const {
  const std::lock_guard lock(mutex_);
  std::vector<Form> forms = kept_;
  const auto is_before = [](const Form& a, const Form& b) {
    return std::tie(a.plain, a.kind, a.layout) < std::tie(b.plain, b.kind, b.layout);
  };
  std::sort(forms.begin(), forms.end(), is_before);
  return forms;
}

void StoredFile::check_plain(uint64_t plain) {
  if (is_written_) return;
  const size_t i = tensor_of(layout_, plain);
  check(layout_.tensors.at(i).piece, "a tensor", tensor_is_checked_[i]);
}

void StoredFile::check(const Piece& piece, const char* what, std::atomic<bool>& is_checked) const {
  if (is_checked) return;
  file_.fetch(piece.offset, piece.end());
  if (checksum(file_.data() + piece.offset, piece.bytes) != piece.checksum) {
    throw_damaged(path_, c10::str(what, " with its checksum"), c10::str("another one at ", piece.offset));
  }
  is_checked = true;
}

std::string StoredFile::describe(uint64_t plain) const {
  if (is_written_) return {};
  if (!reason_.empty()) return "again: " + reason_;
  const std::lock_guard lock(mutex_);
  const auto found = is_found_.find(plain);
  if (found == is_found_.end()) return "not used yet";
  if (found->second) return "in the file";
  return "again: " + (difference_.empty() ? "the file has it in another layout" : difference_);
}

}  // namespace ipex::runtime
