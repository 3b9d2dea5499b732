// A region of a model in which autocast is off, whatever the caller has switched on.
//
//   ipex::pause_autocast() -> AutocastPause
//   ipex::kept_apart(Tensor(a) x, AutocastPause pause) -> Tensor(a)       x itself
//   ipex::resume_autocast(AutocastPause pause) -> ()
//
// passes/autocast_regions.h writes them. Where the model raises inside of the region, the pause ends when TorchScript drops it.
#include <ATen/autocast_mode.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <utility>

#include "packed/door.h"

namespace ipex::runtime {
namespace {

class AutocastPause : public torch::CustomClassHolder {
 public:
  AutocastPause() : was_on_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  ~AutocastPause() override { end(); }
  AutocastPause(const AutocastPause&) = delete;

  void end() {
    if (!std::exchange(is_over_, true)) at::autocast::set_autocast_enabled(at::kCPU, was_on_);
  }

 private:
  bool was_on_, is_over_ = false;
};

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  using Pointer = c10::intrusive_ptr<AutocastPause>;
  m.class_<AutocastPause>("AutocastPause");
  // They have effects that no schema tells.
  constexpr auto effects = c10::AliasAnalysisKind::CONSERVATIVE;
  define(
      m, "pause_autocast() -> __torch__.torch.classes.ipex.AutocastPause",
      [] { return c10::make_intrusive<AutocastPause>(); }, effects);
  define(m, "kept_apart(Tensor(a) x, __torch__.torch.classes.ipex.AutocastPause pause) -> Tensor(a)",
         [](const at::Tensor& x, const Pointer&) { return x; });
  define(
      m, "resume_autocast(__torch__.torch.classes.ipex.AutocastPause pause) -> ()",
      [](const Pointer& pause) { pause->end(); }, effects);
}

}  // namespace
}  // namespace ipex::runtime
