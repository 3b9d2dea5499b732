// What C++ code warns about, as warnings of Python's.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <string>
#include <vector>

namespace ipex::python {

// Keeps warnings, to hand them to Python once the GIL is held.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { messages_.push_back(warning.msg()); }

  void hand_over() const {
    for (const std::string& message : messages_) {
      if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), /*stack_level=*/2) != 0) {
        throw pybind11::error_already_set();
      }
    }
  }

 private:
  std::vector<std::string> messages_;
};

// What `work` gives, called without the GIL.
template <typename Work>
auto with_warnings(Work&& work) {
  Warnings warnings;
  auto result = [&] {
    const pybind11::gil_scoped_release released;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    return work();
  }();
  warnings.hand_over();
  return result;
}

}  // namespace ipex::python
