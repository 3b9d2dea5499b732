// A call takes the short way where the usual one would come down to running the method on tensors, and the usual way
// everywhere else: hooks, tracing, subclasses of Tensor, other arguments. What is asked here is
// all that nn.Module._call_impl and torch's binding of a ScriptMethod ask.
#include "quick_call.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/api/object.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>

#include "callable_type.h"

namespace py = pybind11;

namespace ipex::python {
namespace {

class Call {
 public:
  explicit Call(const py::tuple& arguments) : Call(arguments[0], arguments[0].attr("forward")) {}

  PyObject* operator()(Arguments arguments, PyObject* names) const {
    try {
      HANDLE_TH_ERRORS
      if (!names && takes(arguments) && is_plain_now()) return run(arguments);
      END_HANDLE_TH_ERRORS_PYBIND
    } catch (...) {
      return raise(std::current_exception());
    }
    return call_as_usual(module_(), arguments, names);
  }

 private:
  Call(const py::object& module, const py::object& forward) : Call(module, forward, method_of(forward)) {}

  Call(const py::object& module, py::object forward, const torch::jit::Method& method)
      : module_(module), forward_(std::move(forward)), self_(method.owner()._ivalue()), function_(method.function()) {
    const auto& expected = function_.getSchema().arguments();
    argument_count_ = expected.size() - 1;  // without self
    takes_tensors_ = std::all_of(expected.begin() + 1, expected.end(), [](const c10::Argument& argument) {
      return argument.type()->kind() == c10::TypeKind::TensorType && !argument.kwarg_only();
    });
  }

  static const torch::jit::Method& method_of(const py::object& forward) {
    if (!py::isinstance<torch::jit::Method>(forward)) {
      throw py::type_error("ipex._C.QuickCall: expected a torch.jit.ScriptModule.");
    }
    return py::cast<const torch::jit::Method&>(forward);
  }

  bool takes(Arguments arguments) const {
    return takes_tensors_ && arguments.size() == argument_count_ &&
           std::all_of(arguments.begin(), arguments.end(), THPVariable_CheckExact);
  }

  bool is_plain_now() const {
    return is_called_plainly(own_attributes(module_()).ptr(), forward_.ptr()) && !torch::jit::tracer::isTracing();
  }

  PyObject* run(Arguments arguments) const {
    torch::jit::Stack stack;
    stack.reserve(arguments.size() + 1);
    stack.emplace_back(self_);
    for (PyObject* argument : arguments) stack.push_back(torch::jit::toIValue(argument, c10::TensorType::get()));
    {
      const py::gil_scoped_release released;
      function_.run(stack);
    }
    return torch::jit::toPyObject(std::move(stack.back())).release().ptr();
  }

  const py::weakref module_;  // which owns this
  const py::object forward_;
  const c10::intrusive_ptr<c10::ivalue::Object> self_;  // keeps the function too
  torch::jit::Function& function_;
  size_t argument_count_;
  bool takes_tensors_;
};

}  // namespace

void define_quick_call(py::module_& m) { CallableType<Call>::define(m, "QuickCall", "ipex._C.QuickCall"); }

}  // namespace ipex::python
